//! Tests enqueues in the caller's transaction, on every kind of connection and with every option. An error names its reason.

use std::{future::IntoFuture as _, str::FromStr as _, time::Duration};

use chrono::{DateTime, Utc};
use queue_core::{Error, Job as _, JobId, JobState, Store, options::Durability};
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool, postgres::PgConnectOptions};
use tests::{Act, Do, TestDb};

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn a_job_exists_if_and_only_if_its_transaction_commits() {
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    let gone = quick().enqueue(&mut tx).await.unwrap().id();
    tx.rollback().await.unwrap();

    let mut tx = db.pool.begin().await.unwrap();
    let kept = quick().enqueue(&mut tx).await.unwrap().id();
    let mut inner = tx.begin().await.unwrap();
    let undone = quick().queue("mail", &mut inner).await;
    inner.rollback().await.unwrap();
    let again = quick().queue("mail", &mut tx).await;
    assert_eq!(db.state(kept).await, None, "no session sees it before the commit");
    tx.commit().await.unwrap();

    db.run_until_idle(db.worker()).await;
    for (id, state) in [(gone, None), (kept, Some(JobState::Completed)), (undone, None), (again, Some(JobState::Completed))] {
        assert_eq!(db.state(id).await, state);
    }
    assert_eq!(db.count("select count(*) from queue.job").await, 2);
    db.finish().await;
}

/// Extension trait that enqueues a job into a given queue.
trait InQueue {
    async fn queue(self, queue: &str, on: &mut PgConnection) -> JobId;
}

impl InQueue for Do {
    async fn queue(self, queue: &str, on: &mut PgConnection) -> JobId {
        self.enqueue(on).queue(queue).await.unwrap().id()
    }
}

#[tokio::test]
async fn a_job_is_enqueued_on_every_kind_of_connection() {
    async fn each(pool: PgPool, mut own: PgConnection) -> Result<Vec<JobId>, Error> {
        let mut borrowed = pool.acquire().await?;
        let mut ids = vec![
            quick().enqueue(&pool).await?.id(),
            quick().enqueue(&mut own).await?.id(),
            quick().enqueue(&mut borrowed).await?.id(),
            quick().enqueue(&mut *borrowed).await?.id(),
        ];
        let mut tx = own.begin().await?;
        ids.push(quick().enqueue(&mut tx).await?.id());
        ids.push(quick().enqueue(&mut *tx).await?.id());
        tx.commit().await?;
        let mut tx = borrowed.begin().await?;
        ids.push(quick().enqueue(&mut tx).priority(1).await?.id());
        tx.commit().await?;
        Ok(ids)
    }
    let db = TestDb::new().await;
    let ids = tokio::spawn(each(db.pool.clone(), connect(&db).await)).await.unwrap().unwrap();
    let handle = tokio::spawn(quick().enqueue(&*Box::leak(Box::new(db.pool.clone()))).into_future()).await.unwrap().unwrap();
    db.run_until_idle(db.worker()).await;
    for id in ids.into_iter().chain([handle.id()]) {
        assert_eq!(db.state(id).await, Some(JobState::Completed));
    }
    db.finish().await;
}

#[tokio::test]
async fn what_is_enqueued_with_a_job_is_stored() {
    type Row = (String, String, i16, i16, i16, String, Option<DateTime<Utc>>);
    let db = TestDb::new().await;
    let (past, future) = (DateTime::UNIX_EPOCH, "9999-12-31T23:59:59.999999Z".parse::<DateTime<Utc>>().unwrap());
    let jobs = [
        quick().enqueue(&db.pool).await.unwrap(),
        quick().enqueue(&db.pool).queue("Mail.v2:eu_west-1").priority(i16::MIN).max_attempts(1).await.unwrap(),
        quick().enqueue(&db.pool).priority(i16::MAX).max_attempts(i16::MAX).at(past).await.unwrap(),
        quick().enqueue(&db.pool).at(past).at(future).await.unwrap(),
        quick().enqueue(&db.pool).at(future).after(Duration::ZERO).await.unwrap(),
        quick().enqueue(&db.pool).at(future).durability(Durability::Relaxed).await.unwrap(),
    ];
    let row = |queue: &str, priority, max_attempts, state: &str, run_at| -> Row {
        (queue.to_owned(), "do".to_owned(), priority, 0, max_attempts, state.to_owned(), run_at)
    };
    let expected = [
        row("default", 100, 3, "ready", None),
        row("Mail.v2:eu_west-1", i16::MIN, 1, "ready", None),
        row("default", i16::MAX, i16::MAX, "ready", None),
        row("default", 100, 3, "scheduled", Some(future)),
        row("default", 100, 3, "ready", None),
        row("default", 100, 3, "scheduled", Some(future)),
    ];
    for (job, expected) in jobs.iter().zip(expected) {
        let query = "select queue, job_type, priority, attempts, max_attempts, state, run_at from queue.jobs where id = $1";
        let found: Row = sqlx::query_as(query).bind(job.id()).fetch_one(&db.pool).await.unwrap();
        assert_eq!(found, expected);
    }
    let later = quick().enqueue(&db.pool).after(Duration::from_hours(1)).await.unwrap().id();
    let query = "select extract(epoch from run_at - now())::float8 from queue.scheduled where id = $1";
    let wait: f64 = sqlx::query_scalar(query).bind(later).fetch_one(&db.pool).await.unwrap();
    assert!((3500.0..=3600.0).contains(&wait), "{wait} s");
    db.finish().await;
}

#[tokio::test]
async fn a_wait_counts_from_the_enqueue_not_from_the_transactions_start() {
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    tx.execute("select pg_sleep(0.3)").await.unwrap();
    quick().enqueue(&mut tx).after(Duration::from_millis(200)).await.unwrap();
    let ahead: bool =
        sqlx::query_scalar("select run_at > now() + interval '500 ms' from queue.scheduled").fetch_one(&mut *tx).await.unwrap();
    assert!(ahead);
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_lane_created_in_a_transaction_that_is_rolled_back_works_for_all_others() {
    let db = TestDb::new().await;
    db.run_while(db.worker(), async {
        let mut first = db.pool.begin().await.unwrap();
        quick().queue("new", &mut first).await;
        let second = quick().enqueue(&db.pool).queue("new").await.unwrap().id();
        first.rollback().await.unwrap();
        let third = quick().enqueue(&db.pool).queue("new").await.unwrap().id();
        db.until(second, JobState::Completed).await;
        db.until(third, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn producers_that_create_the_same_lane_do_not_wait_for_each_other() {
    let db = TestDb::new().await;
    let (mut first, mut second) = (db.pool.begin().await.unwrap(), db.pool.begin().await.unwrap());
    let one = quick().queue("new", &mut first).await;
    second.execute("set local lock_timeout = '500ms'").await.unwrap();
    let two = quick().queue("new", &mut second).await;
    second.commit().await.unwrap();
    db.run_while(db.worker(), async {
        db.until(two, JobState::Completed).await;
        assert_eq!(db.state(one).await, None);
        first.commit().await.unwrap();
        db.until(one, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_store_without_tables_is_a_clear_error() {
    let db = TestDb::new().await;
    let elsewhere = Store::new("elsewhere").unwrap();
    db.pool.execute("create schema half").await.unwrap();
    for store in [elsewhere, Store::new("half").unwrap()] {
        let error = quick().enqueue(&db.pool).store(store).await.unwrap_err();
        assert!(matches!(&error, Error::NotMigrated { schema } if schema == store.schema()), "{error}");
        assert!(error.to_string().contains("queue-worker migrate"), "{error}");
    }
    db.finish().await;
}

#[tokio::test]
async fn the_sql_function_does_what_the_rust_call_does() {
    let db = TestDb::new().await;
    let run_at: DateTime<Utc> = "2999-01-01T00:00:00Z".parse().unwrap();
    let payload = serde_json::to_value(quick()).unwrap();
    for at in [None, Some(run_at)] {
        let rust = quick().enqueue(&db.pool).queue("mail").priority(7).max_attempts(2);
        let rust = if let Some(at) = at { rust.at(at) } else { rust }.await.unwrap().id();
        let call = "select queue.enqueue('do', $1, jsonb_build_object('queue', 'mail', 'priority', 7, 'max_attempts', 2, 'run_at', $2))";
        let sql: JobId = sqlx::query_scalar(call).bind(&payload).bind(at).fetch_one(&db.pool).await.unwrap();
        let row = "select (to_jsonb(j) - 'id' - 'enqueued_at')::text from queue.jobs j where id = $1";
        let of = async |id: JobId| sqlx::query_scalar::<_, String>(row).bind(id).fetch_one(&db.pool).await.unwrap();
        assert_eq!(of(rust).await, of(sql).await);
    }
    let plain: JobId = sqlx::query_scalar("select queue.enqueue('do', $1)").bind(&payload).fetch_one(&db.pool).await.unwrap();
    let defaults: (String, i16, i16) =
        sqlx::query_as("select queue, priority, max_attempts from queue.jobs where id = $1").bind(plain).fetch_one(&db.pool).await.unwrap();
    assert_eq!(defaults, ("default".to_owned(), 100, 20));
    db.run_while(db.worker(), db.until(plain, JobState::Completed)).await;
    db.finish().await;
}

/// SQL that creates a schema to be put before `pg_catalog` on the search path. Its objects shadow built-in functions, operators and types,
/// and the store's tables, and fail when they are used.
const HOSTILE: &str = "
create schema evil;
create function evil.fail() returns text language plpgsql as $$ begin raise exception 'hijacked'; end $$;
create function evil.now() returns timestamptz language sql as 'select evil.fail()::timestamptz';
create function evil.clock_timestamp() returns timestamptz language sql as 'select evil.fail()::timestamptz';
create function evil.date_part(text, timestamptz) returns float8 language sql as 'select evil.fail()::float8';
create function evil.nextval(regclass) returns bigint language sql as 'select evil.fail()::bigint';
create function evil.octet_length(text) returns int language sql as 'select evil.fail()::int';
create function evil.sha256(bytea) returns bytea language sql as 'select evil.fail()::bytea';
create function evil.decode(text, text) returns bytea language sql as 'select evil.fail()::bytea';
create function evil.left(text, int) returns text language sql as 'select evil.fail()';
create function evil.pg_notify(text, text) returns void language sql as 'select evil.fail()';
create function evil.times(float8, interval) returns interval language sql as 'select evil.fail()::interval';
create function evil.plus(timestamptz, interval) returns timestamptz language sql as 'select evil.fail()::timestamptz';
create function evil.later(timestamptz, timestamptz) returns boolean language sql as 'select evil.fail()::boolean';
create function evil.same(bigint, bigint) returns boolean language sql as 'select evil.fail()::boolean';
create function evil.joined(text, text) returns text language sql as 'select evil.fail()';
create operator evil.* (leftarg = float8, rightarg = interval, function = evil.times);
create operator evil.+ (leftarg = timestamptz, rightarg = interval, function = evil.plus);
create operator evil.> (leftarg = timestamptz, rightarg = timestamptz, function = evil.later);
create operator evil.= (leftarg = bigint, rightarg = bigint, function = evil.same);
create operator evil.|| (leftarg = text, rightarg = text, function = evil.joined);
create domain evil.jsonb as text check (value = 'hijacked');
create domain evil.text as pg_catalog.text check (value = 'hijacked');
create table evil.jobs (); create table evil.job (); create table evil.lane (); create table evil.ready (); create table evil.idle ();
create table evil.lease (); create table evil.worker (); create table evil.done (); create table evil.scheduled ();
";

#[tokio::test]
async fn f21_a_hostile_search_path_has_no_effect() {
    let db = TestDb::new().await;
    db.pool.execute(HOSTILE).await.unwrap();
    let options = PgConnectOptions::from_str(&db.url).unwrap().options([("search_path", "evil,pg_temp,pg_catalog,public")]);
    let hostile = PgPool::connect_lazy_with(options);
    let hijacked = hostile.execute("select now(), 1.0::float8 * interval '1 s'").await.unwrap_err().to_string();
    assert!(hijacked.contains("hijacked"), "the trap is set: {hijacked}");

    let worker = queue_worker::Worker::new(hostile.clone()).register::<Do>();
    db.run_while(worker, async {
        for wait in [None, Some(Duration::ZERO), Some(Duration::from_millis(50))] {
            let job = quick().enqueue(&hostile);
            let job = if let Some(wait) = wait { job.after(wait) } else { job }.await.unwrap().id();
            db.until(job, JobState::Completed).await;
        }
        let relaxed = quick().enqueue(&hostile).durability(Durability::Relaxed).await.unwrap().id();
        db.until(relaxed, JobState::Completed).await;
        let failed = Do { act: Act::FailUntil(2) }.enqueue(&hostile).await.unwrap().id();
        db.until(failed, JobState::Completed).await;
    })
    .await;
    hostile.close().await;
    db.finish().await;
}

/// If a transaction took a lock for each new queue, it would fill the server's lock table, and other sessions could not take locks.
#[tokio::test]
#[ignore = "deep"]
async fn a_transaction_that_creates_thousands_of_queues_holds_a_bounded_number_of_locks() {
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    let meet = "select count(queue.enqueue('do', '{}', jsonb_build_object('queue', 'queue-' || n))) from generate_series(1, 3000) n";
    assert_eq!(sqlx::query_scalar::<_, i64>(meet).fetch_one(&mut *tx).await.unwrap(), 3000);
    let locks = "select count(*) from pg_locks where pid = pg_backend_pid()";
    let locks: i64 = sqlx::query_scalar(locks).fetch_one(&mut *tx).await.unwrap();
    assert!((1..=100).contains(&locks), "{locks} locks");
    tx.rollback().await.unwrap();
    db.finish().await;
}
