//! Tests the SQL statements for expiry: the jobs that the statements expire, skip, and check again.

use queue_core::{Job as _, JobId, JobState};
use sqlx::{Connection as _, PgConnection, Row as _};
use tests::{
    Act, Do, TestDb,
    operate::{self, expire_due},
    protocol::{Lease, claim, expire_held, register, settle},
};

use super::{HOUR, connect, count_entries, enqueue, expire_now, ok};

async fn lease(on: &mut PgConnection, most: i32) -> Lease {
    let worker = register(on).await.unwrap();
    claim(on, worker, most).await.unwrap()
}

/// Moves all postponed checks into the past and runs a sweep. Returns the number of expired jobs.
pub(super) async fn expire_all_due(on: &mut PgConnection) -> i64 {
    sqlx::query("update queue.expiry set at = now() - (1 + random()) * interval '1 s' where looks > 0").execute(&mut *on).await.unwrap();
    expire_due(on).await.unwrap()
}

#[tokio::test]
async fn only_due_waiting_jobs_that_have_not_begun_expire() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(ok(&db).await);
    }
    let [tried, crashed, moved, scheduled, put_back] = jobs[..] else { unreachable!() };
    let (not_due, put_off) = (ok(&db).await, ok(&db).await);
    let blocked = async |key: &str| Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).key(key).expires_in(HOUR).await.unwrap().id();
    let (head, behind, third) = (blocked("a").await, blocked("a").await, blocked("a").await);
    operate::reschedule(&mut on, &[scheduled, put_off]).await.unwrap();
    for change in [
        "update queue.ready set attempts = 1 where id = $1",
        "update queue.ready set crashes = 1 where id = $2",
        "update queue.ready set seq = queue.next_id() where id = $3",
        "update queue.scheduled set attempts = 1 where id = $4",
        "update queue.ready set seq = queue.next_id(), attempts = 1 where id = $5",
    ] {
        let change = sqlx::query(sqlx::AssertSqlSafe(format!(
            "with n as (select $1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint) {change}"
        )));
        change.bind(tried).bind(crashed).bind(moved).bind(put_off).bind(put_back).execute(&mut on).await.unwrap();
    }
    expire_now(&db, &[&jobs[..], &[put_off, head, behind]].concat()).await;
    assert_eq!(expire_due(&mut on).await.unwrap(), 4);
    for (what, job, state) in [
        ("it has failed before", tried, JobState::Ready),
        ("it has ended a process", crashed, JobState::Ready),
        ("it has become ready again", moved, JobState::Expired),
        ("it is scheduled", scheduled, JobState::Expired),
        ("it is retried", put_off, JobState::Scheduled),
        ("it is ready to be retried", put_back, JobState::Ready),
        ("it is not due", not_due, JobState::Ready),
        ("it is the head of a key", head, JobState::Expired),
        ("it is blocked", behind, JobState::Expired),
        ("it is blocked, and not due", third, JobState::Blocked),
    ] {
        assert_eq!(db.state(job).await, Some(state), "{what}");
        let waits = i64::from([not_due, third].contains(&job));
        assert_eq!(count_entries(&db, job).await, waits, "{what}: jobs that have begun or finished are not checked");
    }
    let begun: Vec<JobId> = sqlx::query_scalar("select e from queue.expire_all($1) e")
        .bind([tried, crashed, put_off, put_back, not_due, third])
        .fetch_all(&mut on)
        .await
        .unwrap();
    assert!(begun.is_empty(), "for every claim: {begun:?}");
    assert_eq!(operate::unblock(&mut on).await.unwrap(), 1, "the key continues");
    assert_eq!(db.count("select count(*) from queue.done where expired and cancelled and attempts = 0 and ran_ms = 0").await, 4);
    db.finish().await;
}

#[tokio::test]
async fn jobs_due_first_expire_first_up_to_the_given_number() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let mut jobs = Vec::new();
    for place in 0..6 {
        let job = ok(&db).await;
        jobs.push(job);
        let due = "with j as (update queue.job set system = queue.with_expiry(system, now() - $2 * interval '1 s') where id = $1)
          update queue.expiry set at = now() - $2 * interval '1 s' where id = $1";
        sqlx::query(due).bind(job).bind(10.0 + f64::from(place)).execute(&mut on).await.unwrap();
    }
    let row = sqlx::query("select hints, expired from queue.expire_due('-infinity', 4)").fetch_one(&mut on).await.unwrap();
    let mut expired: Vec<JobId> = row.get("expired");
    expired.sort_unstable();
    assert_eq!((row.get::<i32, _>("hints"), expired), (4, jobs[2..].to_vec()), "the longest due");
    db.finish().await;
}

#[tokio::test]
async fn a_job_claimed_in_time_is_checked_until_it_has_begun() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let (released, completed, retried) = (ok(&db).await, ok(&db).await, ok(&db).await);
    let held = lease(&mut on, 3).await;
    expire_now(&db, &[released, completed, retried]).await;
    assert_eq!(expire_due(&mut on).await.unwrap(), 0, "they run");
    assert_eq!(db.count("select count(*) from queue.expiry where at > now() and looks = 1").await, 3);
    assert_eq!(expire_all_due(&mut on).await, 0);
    assert_eq!(db.count("select count(*) from queue.expiry where at > now() + interval '1.1 s' and looks = 2").await, 3, "later each time");
    let place = |job| held.jobs.iter().position(|one| one.id == job).unwrap();
    let verdicts = [held.one(place(released), "release"), held.one(place(completed), "complete"), held.one(place(retried), "retry")];
    assert_eq!(settle(&mut on, &verdicts).await.unwrap(), []);
    assert_eq!(expire_all_due(&mut on).await, 1, "what was given back uncharged has not begun");
    assert_eq!(db.state(released).await, Some(JobState::Expired));
    assert_eq!(db.count("select count(*) from queue.expiry").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_holder_expires_only_due_jobs_by_the_databases_clock_and_releases_the_rest() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let (due, early, untouched, second, cancelled) = (ok(&db).await, ok(&db).await, ok(&db).await, ok(&db).await, ok(&db).await);
    let keyed = async |key: &str| Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).key(key).expires_in(HOUR).await.unwrap().id();
    let (head, behind) = (keyed("k").await, keyed("k").await);
    let (free, after) = (keyed("m").await, keyed("m").await);
    sqlx::query("update queue.ready set attempts = 1 where id = $1").bind(second).execute(&mut on).await.unwrap();
    let held = lease(&mut on, 9).await;
    let (there, left) = (ok(&db).await, ok(&db).await);
    let other = lease(&mut on, 9).await;
    assert_eq!((held.jobs.len(), other.ids()), (7, vec![there, left]));
    expire_now(&db, &[due, second, cancelled, untouched, head, there, left]).await;
    operate::cancel_running(&mut on, &[cancelled]).await.unwrap();
    let one = |job| held.one(held.jobs.iter().position(|one| one.id == job).unwrap(), "release");
    let verdicts = [one(due), one(early), one(second), one(cancelled), one(head), one(free), other.one(0, "release")];
    let foreign = tests::protocol::JobVerdict { token: uuid::Uuid::new_v4(), ..one(untouched) };
    assert_eq!(expire_held(&mut on, &[&verdicts[..], &[foreign]].concat()).await.unwrap(), [(foreign.token, Some(untouched))]);
    for (what, job, state) in [
        ("due", due, JobState::Expired),
        ("not due", early, JobState::Ready),
        ("not named under its lease", untouched, JobState::Running),
        ("begun before", second, JobState::Ready),
        ("cancelled meanwhile", cancelled, JobState::Cancelled),
        ("the head of a key", head, JobState::Expired),
        ("the head of another key, and not due", free, JobState::Ready),
        ("behind it", after, JobState::Blocked),
        ("of another lease", there, JobState::Expired),
        ("beside that", left, JobState::Running),
    ] {
        assert_eq!(db.state(job).await, Some(state), "{what}");
    }
    let charged: Vec<i16> =
        sqlx::query_scalar("select attempts from queue.ready where seq = id order by id").fetch_all(&mut on).await.unwrap();
    assert_eq!(charged, [0, 1, 0], "each as before its claim");
    assert_eq!(db.count("select count(*) from queue.done where attempts = 0").await, 4);
    assert_eq!(db.count("select sum(cardinality(ids))::bigint from queue.lease").await, 2);
    assert_eq!(operate::unblock(&mut on).await.unwrap(), 1);
    assert_eq!(db.state(behind).await, Some(JobState::Ready));
    // A repeated request, for example after a lost reply or from a zombie, is rejected for all jobs.
    assert_eq!(expire_held(&mut on, &verdicts).await.unwrap().len(), 7);
    db.finish().await;
}

#[tokio::test]
async fn a_silent_holder_expires_no_job_that_is_being_recovered() {
    let db = TestDb::new().await;
    let (mut on, mut recovers) = (connect(&db).await, connect(&db).await);
    let job = ok(&db).await;
    let worker = register(&mut on).await.unwrap();
    let held = claim(&mut on, worker, 1).await.unwrap();
    expire_now(&db, &[job]).await;
    tests::protocol::silence(&mut on, worker).await.unwrap();
    let mut tx = recovers.begin().await.unwrap();
    let tokens = tests::protocol::lock_silent(&mut tx).await.unwrap();
    assert_eq!(tests::protocol::take_back(&mut tx, &tokens).await.unwrap().len(), 1);
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let ends = async {
        tests::eventually("the zombie waits", async || db.count(waits).await > 0).await;
        tx.commit().await.unwrap();
    };
    let verdicts = held.all("release");
    let (refused, ()) = tokio::join!(expire_held(&mut on, &verdicts), ends);
    assert_eq!(refused.unwrap().len(), 1);
    assert_eq!(db.state(job).await, Some(JobState::Ready), "it had begun, as far as the store knows");
    db.finish().await;
}

#[tokio::test]
async fn a_manually_written_time_expires_nothing_and_stops_nothing() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let good = ok(&db).await;
    let mut bad = Vec::new();
    for text in [r#""""#, r#""soon""#, r#""0""#, "null", "7", "{}", r#""2020-01-01""#, r#""2020-01-01T00:00:00Z""#] {
        let job = ok(&db).await;
        let spoil = "update queue.job set system = jsonb_build_object('expires_at', $2::text::jsonb) where id = $1";
        sqlx::query(spoil).bind(job).bind(text).execute(&mut on).await.unwrap();
        sqlx::query("update queue.expiry set at = '1970-01-01+00' where id = $1").bind(job).execute(&mut on).await.unwrap();
        bad.push(job);
    }
    // Metadata with the key `expires_at` belongs to the user and does not expire the job.
    bad.push(Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).meta("expires_at", "2020-01-01T00:00:00.000000Z").await.unwrap().id());
    expire_now(&db, &[good]).await;
    assert_eq!(expire_due(&mut on).await.unwrap(), 1);
    assert_eq!(db.count("select count(*) from queue.expiry").await, 0);
    for job in &bad {
        assert_eq!(db.state(*job).await, Some(JobState::Ready));
    }
    let done = "select count(*) from queue.jobs where state = 'completed'";
    let all = tests::eventually("a worker runs them", async || db.count(done).await == bad.len() as i64);
    sqlx::query("delete from queue.worker").execute(&mut on).await.unwrap();
    db.run_while(db.worker(), all).await;
    db.finish().await;
}

#[tokio::test]
async fn with_any_table_statistics_no_sweep_reads_a_whole_table() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    // Run the statement while the tables are almost empty, so that its cached plan is made for empty tables.
    for _ in 0..6 {
        let job = ok(&db).await;
        expire_now(&db, &[job]).await;
        assert_eq!(expire_due(&mut on).await.unwrap(), 1);
    }
    Do::enqueue_all((0..30_000).map(|_| Do { act: Act::Ok(String::new()) }), &db.pool).await.unwrap();
    Do::enqueue_all((0..30_000).map(|_| Do { act: Act::Ok(String::new()) }), &db.pool).after(HOUR).await.unwrap();
    let jobs = [enqueue(&db, Act::Ok(String::new())).await.id(), ok(&db).await];
    expire_now(&db, &jobs).await;
    sqlx::query("begin").execute(&mut on).await.unwrap();
    let read = "select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint from pg_stat_xact_user_tables
      where schemaname = 'queue' and relname ~ '^(ready|scheduled|blocked|job|done|expiry)'";
    let before: i64 = sqlx::query_scalar(read).fetch_one(&mut on).await.unwrap();
    assert_eq!(expire_due(&mut on).await.unwrap(), 2);
    let after: i64 = sqlx::query_scalar(read).fetch_one(&mut on).await.unwrap();
    assert!(after - before < 200, "{} rows were read for two", after - before);
    sqlx::query("commit").execute(&mut on).await.unwrap();
    db.finish().await;
}
