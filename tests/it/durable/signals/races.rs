//! Tests signals and parking in every order. No signal is lost. A statement that checks for a signal and then parks the job
//! without leaving a hint would lose signals.

use std::time::Duration;

use queue_core::{Job as _, JobHandle, JobId, JobState, operate::SignalOutcome};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tests::{Sql as _, TestDb, within};
use uuid::Uuid;

use super::{Part, Plan, db, db_by_hand, plan, receive, send};

const PARK: &str = include_str!("../../../../queue-worker/sql/park_held.sql");
const WAKE: &str = include_str!("../../../../queue-worker/sql/wake_parked.sql");
const RECEIVE: &str = include_str!("../../../../queue-worker/sql/receive.sql");

/// Returns the worker's statement that parks a job, and a variant of the statement that leaves no hint.
fn park_statements() -> [(&'static str, String); 2] {
    let hint = "insert into queue.signal_hint (id)\n  select f.id\n  from fenced f\n  where not f.cancelling";
    assert!(PARK.contains(hint), "the hint is found");
    [("ours", PARK.to_owned()), ("look, then park", PARK.replace(hint, &format!("{hint} and false")))]
}

/// Creates a job under a lease. Returns the job and the lease token.
pub(in super::super) async fn leased(db: &TestDb) -> (JobHandle<Plan>, Uuid) {
    let (job, token) = (plan([]).enqueue(&db.pool).await.unwrap(), Uuid::new_v4());
    let statement = "with gone as (delete from queue.ready where id = $2 returning lane)
        insert into queue.lease (token, worker, claimed_at, lane, ids, attempts, crashes)
        select $1, gen_random_uuid(), now(), lane, array[$2], array[1::smallint], array[0::smallint] from gone";
    sqlx::query(statement).bind(token).bind(job.id()).execute(&db.pool).await.unwrap();
    (job, token)
}

/// Parks the job, which then waits for a signal named `go`. Returns `false` if the statement rejected the job.
pub(super) async fn park(on: &mut PgConnection, statement: &str, job: JobId, token: Uuid) -> bool {
    let lane: i64 = on.one(&format!("select lane from queue.job where id = {job}")).await;
    let statement = sqlx::query(AssertSqlSafe(statement.to_owned())).bind([token]).bind([job]).bind([lane]).bind([1_i16]);
    let refused = statement.bind([None::<f64>]).bind([r#"["go"]"#]).persistent(false).fetch_all(on).await.unwrap();
    refused.is_empty()
}

/// Runs the statement that receives a signal, as an attempt does before it parks. Returns whether a signal was received.
async fn has_signal(on: &mut PgConnection, job: JobId, token: Uuid) -> bool {
    let statement = sqlx::query(RECEIVE).bind([token]).bind([job]).bind(["go"]).bind([1_i16]).bind(["go"]).bind([None::<String>]);
    statement.fetch_one(on).await.unwrap().get("is_journaled")
}

/// Consumes signal hints until none is left or a pass wakes no job. Returns the number of woken jobs.
pub(in super::super) async fn wake(on: &mut PgConnection) -> i32 {
    let mut moved = 0;
    loop {
        let (hints, _, woken): (i32, Option<i64>, i32) = sqlx::query_as(WAKE).bind(0_i64).bind(100).fetch_one(&mut *on).await.unwrap();
        moved += woken;
        if hints == 0 || woken == 0 {
            return moved;
        }
    }
}

async fn is_woken(db: &TestDb, job: JobId) -> bool {
    db.state(job).await == Some(JobState::Ready)
}

#[tokio::test]
async fn a_signal_between_the_query_and_the_park_wakes_the_job_and_without_the_hint_it_is_lost() {
    let (db, mut on) = db_by_hand().await;
    for (name, statement) in park_statements() {
        let (job, token) = leased(&db).await;
        assert!(!has_signal(&mut on, job.id(), token).await, "there is none");
        send(&db, job, "go", "now").await;
        assert_eq!(wake(&mut on).await, 0, "its hint is consumed while the job runs");
        assert!(park(&mut on, &statement, job.id(), token).await);
        wake(&mut on).await;
        assert_eq!(is_woken(&db, job.id()).await, name == "ours", "{name}");
        assert_eq!(db.count("select count(*) from queue.signal_hint").await, 0, "no job would check again");
    }
    drop(on);
    db.finish().await;
}

#[tokio::test]
async fn a_signal_that_is_committed_after_the_park_wakes_the_job() {
    let (db, mut on) = db_by_hand().await;
    let (job, token) = leased(&db).await;
    let mut open = db.pool.begin().await.unwrap();
    assert_eq!(job.signal(&mut open, "go", "now").await.unwrap(), SignalOutcome::Sent);
    assert!(!has_signal(&mut on, job.id(), token).await);
    assert!(park(&mut on, PARK, job.id(), token).await);
    assert_eq!(wake(&mut on).await, 0, "the hint of the park sees no signal");
    open.commit().await.unwrap();
    assert_eq!(wake(&mut on).await, 1);
    assert!(is_woken(&db, job.id()).await);
    drop(on);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_without_a_notification_finds_a_signal_by_polling() {
    let db = db().await;
    let job = plan([receive("go")]).enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker().register::<Plan>(), async {
        db.until(job.id(), JobState::Parked).await;
        // After a job is parked, the worker polls at short intervals for a while. Wait until these polls have ended, and then insert the
        // signal without a notification.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let quietly = format!(
            "insert into queue.signal (id, name, payload) values ({0}, 'go', '\"now\"'); insert into queue.signal_hint (id) values ({0})",
            job.id()
        );
        db.run(&quietly).await;
        db.until(job.id(), JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

/// The statement that receives the signal waits for a lock, so the worker gets no reply. The job is rescheduled instead of parked, because
/// the signal may already be journaled and no hint exists.
#[tokio::test]
async fn a_signal_whose_receive_got_no_reply_is_found() {
    let db = db().await;
    let job = plan([Part::Receive("go".into())]).enqueue(&db.pool).await.unwrap();
    send(&db, job, "go", "come").await;
    // This uncommitted row blocks only the statement that journals the same step.
    let mut holder = db.connect().await;
    let mut open = holder.begin().await.unwrap();
    let other = "insert into queue.step (id, name, attempt, at, ran_ms) values ($1, 'go', 1, now(), 0)";
    sqlx::query(other).bind(job.id()).execute(&mut *open).await.unwrap();
    db.run_while(db.worker().register::<Plan>(), async {
        within(Duration::from_mins(1), "it is put off", async || db.state(job.id()).await == Some(JobState::Scheduled)).await;
        let other = plan([receive("go")]).enqueue(&db.pool).await.unwrap();
        send(&db, other, "go", "others go on").await;
        db.until(other.id(), JobState::Completed).await;
        assert_eq!(db.count("select count(*) from queue.parked").await, 0);
        open.rollback().await.unwrap();
        db.until(job.id(), JobState::Completed).await;
    })
    .await;
    assert_eq!(db.count("select count(*) from queue.signal").await, 0);
    holder.close().await.unwrap();
    db.finish().await;
}
