//! Tests that an invalid row does not prevent other rows from being processed. For example, a job that cannot be stored in its next state
//! becomes a dead letter. Also tests that functions and tables reject invalid times.

use std::time::Duration;

use queue_core::{Job as _, JobId, JobRef, JobState, Store, options::KeyPolicy};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::{
    Act, Do, TestDb, eventually, operate,
    protocol::{self, claim, recover, register, settle, silence},
    within,
};
use uuid::Uuid;

fn job() -> Do {
    Do { act: Act::Ok(String::new()) }
}

async fn connect(db: &TestDb) -> PgConnection {
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    sqlx::query("set lock_timeout = '5s'").execute(&mut connection).await.unwrap();
    connection
}

async fn keyed(db: &TestDb, key: &str, policy: KeyPolicy) -> JobId {
    job().enqueue(&db.pool).key(key).key_policy(policy).await.unwrap().id()
}

/// Sets the due time of the blocked job to infinity. The tables now reject this time, but older releases did not have the check.
async fn spoil(db: &TestDb, blocked: JobId) {
    sqlx::raw_sql("alter table queue.blocked drop constraint if exists blocked_run_at_in_range").execute(&db.pool).await.unwrap();
    let spoilt = sqlx::query("update queue.blocked set run_at = 'infinity' where id = $1").bind(blocked).execute(&db.pool).await.unwrap();
    assert_eq!(spoilt.rows_affected(), 1, "it is blocked");
}

#[tokio::test]
async fn a_job_that_no_table_accepts_blocks_only_its_own_key() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for round in 0..3 {
        for key in ["a", "b", "c"] {
            let job = keyed(&db, key, KeyPolicy::Block).await;
            jobs.extend((key != "a").then_some(job));
            if (key, round) == ("a", 1) {
                spoil(&db, job).await;
            }
        }
    }
    let first_dead = "select id from queue.dead where error like '%could not continue with it%'";
    let behind = async || db.count("select count(*) from queue.jobs where state = 'blocked'").await;
    db.run_while(db.worker(), async {
        eventually("the other keys are through", async || {
            let mut all_finished = true;
            for job in &jobs {
                all_finished &= db.state(*job).await == Some(JobState::Completed);
            }
            all_finished
        })
        .await;
        eventually("it is a dead letter", async || sqlx::query(first_dead).fetch_optional(&db.pool).await.unwrap().is_some()).await;
        assert_eq!(behind().await, 1, "it holds up its own key");
        let dead: JobId = sqlx::query_scalar(first_dead).fetch_one(&db.pool).await.unwrap();
        JobRef::from_id(dead).requeue(&mut db.pool.acquire().await.unwrap()).await.unwrap();
        eventually("its key continues once an operator has decided", async || behind().await == 0).await;
        db.until(dead, JobState::Completed).await;
    })
    .await;
    db.run_until_idle(db.worker()).await;
    db.finish().await;
}

#[tokio::test]
async fn a_key_that_skips_its_dead_continues_without_jobs_that_no_table_accepts() {
    let db = TestDb::new().await;
    let mut c = connect(&db).await;
    let jobs = [keyed(&db, "a", KeyPolicy::Skip).await, keyed(&db, "a", KeyPolicy::Skip).await, keyed(&db, "a", KeyPolicy::Skip).await];
    spoil(&db, jobs[1]).await;
    let worker = register(&mut c).await.unwrap();
    let lease = claim(&mut c, worker, 9).await.unwrap();
    assert_eq!(settle(&mut c, &lease.all("complete")).await.unwrap(), []);
    assert_eq!(operate::unblock(&mut c).await.unwrap(), 0);
    assert_eq!(operate::unblock(&mut c).await.unwrap(), 1, "it left a hint");
    assert_eq!([db.state(jobs[1]).await, db.state(jobs[2]).await], [Some(JobState::Dead), Some(JobState::Ready)]);
    db.finish().await;
}

#[tokio::test]
async fn a_blocked_job_that_has_another_entry_already_loses_the_blocked_one_and_stays_the_head() {
    let db = TestDb::new().await;
    let mut c = connect(&db).await;
    let (other, next) = (keyed(&db, "b", KeyPolicy::Block).await, keyed(&db, "b", KeyPolicy::Block).await);
    let first = keyed(&db, "a", KeyPolicy::Block).await;
    let twice = job().enqueue(&db.pool).key("a").after(Duration::from_hours(1)).await.unwrap().id();
    let behind = keyed(&db, "a", KeyPolicy::Block).await;
    let forged = "insert into queue.scheduled (run_at, id, lane) select run_at, id, lane from queue.blocked where id = $1";
    sqlx::query(forged).bind(twice).execute(&mut c).await.unwrap();
    let worker = register(&mut c).await.unwrap();
    let lease = claim(&mut c, worker, 9).await.unwrap();
    assert_eq!(lease.ids(), [other, first]);
    assert_eq!(settle(&mut c, &lease.all("complete")).await.unwrap(), []);
    assert_eq!(operate::unblock(&mut c).await.unwrap(), 1);
    let states = [db.state(twice).await, db.state(behind).await, db.state(next).await];
    assert_eq!(states, [Some(JobState::Scheduled), Some(JobState::Blocked), Some(JobState::Ready)]);
    let head: JobId = sqlx::query_scalar("select id from queue.active_key where id = $1").bind(twice).fetch_one(&mut c).await.unwrap();
    assert_eq!(head, twice);
    db.finish().await;
}

#[tokio::test]
async fn a_spoilt_job_locked_by_another_session_is_handled_later() {
    let db = TestDb::new().await;
    let (mut c, mut operator) = (connect(&db).await, connect(&db).await);
    let (first, second) = (keyed(&db, "a", KeyPolicy::Block).await, keyed(&db, "a", KeyPolicy::Block).await);
    spoil(&db, second).await;
    let worker = register(&mut c).await.unwrap();
    let lease = claim(&mut c, worker, 9).await.unwrap();
    assert_eq!(lease.ids(), [first]);
    assert_eq!(settle(&mut c, &lease.all("complete")).await.unwrap(), []);
    let mut held = operator.begin().await.unwrap();
    sqlx::query("select from queue.blocked for update").execute(&mut *held).await.unwrap();
    let aside = "select queue.bury_blocked(key, 'as told') from queue.blocked";
    let hints = "select count(*) from queue.key_hint";
    let before = db.count(hints).await;
    assert_eq!(sqlx::query_scalar::<_, Option<i64>>(aside).fetch_one(&mut c).await.unwrap(), None);
    assert_eq!(db.count(hints).await, before + 1, "so that it is checked again");
    assert_eq!(operate::unblock(&mut c).await.unwrap(), 0);
    held.rollback().await.unwrap();
    assert_eq!(db.state(second).await, Some(JobState::Blocked));
    assert_eq!(operate::unblock(&mut c).await.unwrap(), 0);
    assert_eq!(db.state(second).await, Some(JobState::Dead));
    db.finish().await;
}

#[tokio::test]
async fn f67_a_time_out_of_range_is_refused_by_every_function() {
    let db = TestDb::new().await;
    let mut c = connect(&db).await;
    let waits = keyed(&db, "a", KeyPolicy::Block).await;
    let held: (i64,) =
        sqlx::query_as(r#"select queue.enqueue('do', '{}', '{"unique_key": "u", "key": "a"}')"#).fetch_one(&mut c).await.unwrap();
    assert_eq!(db.state(JobId(held.0)).await, Some(JobState::Blocked));
    let jobs = db.count("select count(*) from queue.job").await;
    let doors = [
        "queue.insert_job('do', '{}', run_at => T)",
        "queue.insert_keyed('do', '{}', 'default', 100::smallint, 3::smallint, T, 'k', null, null)",
        "queue.enqueue('do', '{}', jsonb_build_object('run_at', T))",
        "queue.enqueue('do', '{}', jsonb_build_object('run_at', T, 'key', 'a'))",
        "queue.enqueue('do', '{}', jsonb_build_object('run_at', T, 'unique_key', 'u', 'on_conflict', 'debounce'))",
        "queue.reschedule(W, T)",
        "queue.reschedule_all(array[W], T)",
    ];
    for time in ["infinity", "-infinity", "1969-12-31 23:59:59+00", "10000-01-01+00", "294276-12-31+00"] {
        for door in doors {
            let call = format!("select {}", door.replace('T', &format!("timestamptz '{time}'")).replace('W', &waits.0.to_string()));
            let refused = sqlx::raw_sql(AssertSqlSafe(call.clone())).execute(&mut c).await.unwrap_err();
            let refused = refused.as_database_error().unwrap();
            assert_eq!(refused.code().as_deref(), Some("22023"), "{call}: {refused}");
            assert!(refused.message().contains("within the years 1970 to 9999"), "{call}: {refused}");
        }
    }
    // A direct call to the internal function bypasses the checks of the SQL entry points, but must be rejected too.
    let put_off = "select queue.take_key(queue.unique_hash('default', 'do', 'u'), 'do', '{}', T, 'debounce')";
    for time in ["infinity", "294276-12-31+00"] {
        let call = put_off.replace('T', &format!("timestamptz '{time}'"));
        let refused = sqlx::raw_sql(AssertSqlSafe(call)).execute(&mut c).await.unwrap_err().to_string();
        assert!(refused.contains("within the years 1970 to 9999"), "{refused}");
    }
    for wait in ["9000 years", "-9000 years"] {
        let call = format!("select queue.snooze({waits}, '{wait}')");
        let refused = sqlx::raw_sql(AssertSqlSafe(call)).execute(&mut c).await.unwrap_err().to_string();
        assert!(refused.contains("within the years 1970 to 9999") || refused.contains("out of range"), "{refused}");
    }
    let hold = r#"select queue.enqueue('do', '{}', '{"unique_key": "v", "unique_while": "9000 years"}')"#;
    let refused = sqlx::raw_sql(hold).execute(&mut c).await.unwrap_err().to_string();
    assert!(refused.contains("the option unique_while must be"), "{refused}");
    assert_eq!(db.count("select count(*) from queue.job").await, jobs, "nothing was enqueued");
    db.finish().await;
}

/// Enqueues a job and claims it for the worker. Then executes the statement `spoil` with the lease token and the job id as parameters.
async fn leased(on: &mut PgConnection, worker: Uuid, spoil: &'static str) -> JobId {
    let id = operate::enqueue(on, "default", 100, false).await.unwrap();
    let lease = claim(on, worker, 1).await.unwrap();
    assert_eq!(lease.ids(), [id]);
    sqlx::query(spoil).bind(lease.token).bind(id).execute(on).await.unwrap();
    id
}

const CRASHED_OFTEN: &str = "with l as (update queue.lease set crashes = '{2}' where token = $1 returning lane)
   insert into queue.dead (id, died_at, lane, attempts, crashes, error) select $2, now(), lane, 1, 0, 'before' from l";
const CANCELLING: &str = "with l as (update queue.lease set cancelling = ids where token = $1 returning lane)
   insert into queue.done (id, finished_at, ran_ms, attempts) select $2, now(), 1, 1 from l";

#[tokio::test]
#[ignore = "deep"]
async fn a_bad_lease_does_not_stop_the_recovery_of_others() {
    let bad = [
        ("it is a dead letter already", CRASHED_OFTEN, Some(JobState::Dead)),
        ("it has finished already", CANCELLING, Some(JobState::Completed)),
        ("the clock went back by a year", "update queue.lease set claimed_at = now() + interval '1 year' where token = $1 or id($2)", None),
        ("it was claimed at no time", "update queue.lease set claimed_at = 'infinity' where token = $1 or id($2)", None),
        ("it was claimed before all time", "update queue.lease set claimed_at = '-infinity' where token = $1 or id($2)", None),
        ("its number of attempts is unknown", "update queue.lease set attempts = array[null::smallint] where token = $1 or id($2)", None),
        ("its number of crashes is unknown", "update queue.lease set crashes = array[null::smallint] where token = $1 or id($2)", None),
        ("it crashed often", "update queue.lease set crashes = '{32767}' where token = $1 or id($2)", Some(JobState::Dead)),
    ];
    for (what, spoil, state) in bad {
        let db = TestDb::new().await;
        let mut c = connect(&db).await;
        // Older releases did not have this check, so an existing store may contain a row that violates it.
        sqlx::raw_sql("alter table queue.lease drop constraint lease_claimed_at_in_range").execute(&mut c).await.unwrap();
        // Dummy function that lets every `spoil` statement use both of its parameters.
        sqlx::raw_sql("create function id(bigint) returns boolean language sql return false").execute(&mut c).await.unwrap();
        let worker = register(&mut c).await.unwrap();
        let spoilt = leased(&mut c, worker, spoil).await;
        let good = leased(&mut c, worker, "select $1::uuid, $2::bigint").await;
        silence(&mut c, worker).await.unwrap();
        recover(&mut c).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(db.state(good).await, Some(JobState::Ready), "{what}");
        assert_eq!(db.state(spoilt).await, state.or(Some(JobState::Ready)), "{what}");
        db.finish().await;
    }
}

#[tokio::test]
async fn a_stray_claim_is_released_although_its_jobs_have_moved() {
    let db = TestDb::new().await;
    let mut c = connect(&db).await;
    let worker = register(&mut c).await.unwrap();
    for spoil in [CANCELLING, "insert into queue.ready (lane, seq, id) select lane, $2, $2 from queue.lease where token = $1"] {
        leased(&mut c, worker, spoil).await;
        let token: Uuid = sqlx::query_scalar("select token from queue.lease").fetch_one(&mut c).await.unwrap();
        protocol::give_back(&mut c, token).await.unwrap();
        assert_eq!(db.count("select count(*) from queue.lease").await, 0);
        db.check_invariant().await;
        sqlx::raw_sql("delete from queue.ready; delete from queue.job where id not in (select id from queue.done)")
            .execute(&mut c)
            .await
            .unwrap();
    }
    db.finish().await;
}

#[tokio::test]
async fn a_failing_periodic_chore_does_not_stop_the_others() {
    let db = TestDb::new().await;
    let mut reader = connect(&db).await;
    let drop_last_day = "do $$ declare parent text; begin
       foreach parent in array array['job', 'done', 'done_many', 'failure', 'step'] loop
         execute format('drop table queue.%I', parent || '_' || queue.day_name((now() at time zone 'UTC')::date + 7));
       end loop;
     end $$";
    sqlx::query(drop_last_day).execute(&db.pool).await.unwrap();
    sqlx::query("insert into queue.waiter values (gen_random_uuid(), now() - interval '1 hour')").execute(&db.pool).await.unwrap();
    // A partition cannot be created while a transaction is reading the default partition.
    let mut reading = reader.begin().await.unwrap();
    sqlx::query("select from queue.job_default").execute(&mut *reading).await.unwrap();
    db.run_while(db.worker(), async {
        let gone = async || db.count("select count(*) from queue.waiter").await == 0;
        within(Duration::from_mins(2), "the rest is done", gone).await;
    })
    .await;
    reading.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_retention_out_of_range_is_a_thousand_years() {
    let db = TestDb::new().await;
    let mut c = connect(&db).await;
    let statement =
        "insert into queue.job (id, lane, max_attempts, payload) select 1, queue.ensure_lane('default', 'do', 100::smallint, false), 3, '{}';
      insert into queue.done (id, finished_at, ran_ms, attempts) values (1, now(), 1, 1)";
    sqlx::raw_sql(statement).execute(&mut c).await.unwrap();
    operate::keep_types(&mut c, f64::from(u32::MAX) * 1e3).await.unwrap();
    assert_eq!(operate::prune_kept(&mut c).await.unwrap(), 0);
    let prune = sqlx::query_scalar::<_, bool>(Store::default().sql(include_str!("../../queue-worker/sql/drop_day.sql")));
    prune.bind(86_400.0).fetch_one(&mut c).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.retention where history > interval '999 years'").await, 1);
    db.finish().await;
}

/// Columns that may contain `-infinity`, because only SQL statements read them.
const INFINITE_BY_DEFAULT: [(&str, &str); 2] = [("limiter", "not_before"), ("limiter", "read_at")];

#[tokio::test]
async fn no_table_accepts_a_time_that_a_program_cannot_read() {
    let db = TestDb::new().await;
    let mut c = connect(&db).await;
    // The function copies the table `of` with only its time range checks, whose names end in `_in_range`. An insert then needs only one
    // column.
    let refusal = "create function pg_temp.refusal(of regclass, name text, value text) returns text language plpgsql as $$
      declare other text; why text;
      begin
        drop table if exists pg_temp.copy;
        execute format('create temp table copy (like %s including constraints)', of);
        for other in
          select conname from pg_constraint
          where conrelid = 'pg_temp.copy'::regclass and contype = 'c' and right(conname, 9) <> '_in_range'
        loop
          execute format('alter table pg_temp.copy drop constraint %I', other);
        end loop;
        for other in select attname from pg_attribute where attrelid = 'pg_temp.copy'::regclass and attnotnull and attnum > 0 loop
          execute format('alter table pg_temp.copy alter %I drop not null', other);
        end loop;
        execute format('insert into pg_temp.copy (%I) values (%L)', name, value);
        return null;
      exception when check_violation then
        get stacked diagnostics why = constraint_name;
        return why;
      end $$";
    sqlx::raw_sql(refusal).execute(&mut c).await.unwrap();
    let times = "select r.oid::regclass::text, r.relname::text, a.attname::text from pg_class r join pg_attribute a on a.attrelid = r.oid
      where r.relnamespace = 'queue'::regnamespace and r.relkind in ('r', 'p') and not r.relispartition
        and a.atttypid = 'timestamptz'::regtype and not a.attisdropped";
    let times: Vec<(String, String, String)> = sqlx::query_as(times).fetch_all(&mut c).await.unwrap();
    assert!(times.len() > 40, "all of the store's: {}", times.len());
    let mut taken = Vec::new();
    for (path, table, column) in &times {
        let values = ["infinity", "294276-12-31 23:59:59+00", "-infinity", "4713-01-01 00:00:00+00 BC"];
        for value in &values[..if INFINITE_BY_DEFAULT.contains(&(table, column)) { 2 } else { 4 }] {
            let refused = sqlx::query_scalar("select pg_temp.refusal($1::text::regclass, $2, $3)").bind(path).bind(column).bind(value);
            let refused: Option<String> = refused.fetch_one(&mut c).await.unwrap();
            if !refused.is_some_and(|constraint| constraint.ends_with("_in_range")) {
                taken.push(format!("{table}.{column}: {value}"));
            }
        }
    }
    assert!(taken.is_empty(), "{taken:#?}");
    db.finish().await;
}
