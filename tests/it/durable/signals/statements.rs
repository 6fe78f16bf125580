//! Tests the SQL statements for signals: their fencing, the rows that they skip, and the rows that they delete.

use queue_core::{JobId, JobState};
use sqlx::PgConnection;
use tests::{Sql as _, TestDb, die};
use uuid::Uuid;

use super::{
    db, db_by_hand,
    races::{leased, park, wake},
    send, unreceived,
};

const PARK: &str = include_str!("../../../../queue-worker/sql/park_held.sql");
const RECEIVE: &str = include_str!("../../../../queue-worker/sql/receive.sql");
const PRUNE: &str = include_str!("../../../../queue-worker/sql/prune_signals.sql");

/// Outcome of a receive: whether the wait timed out, the payload, and whether the step is journaled. `None` if the receive was rejected.
pub(super) type ReceiveOutcome = Option<(bool, Option<String>, bool)>;

/// Request to receive a signal: lease token, job, step name, signal name, and the step that holds the deadline of the wait.
pub(super) type SignalRequest<'a> = (Uuid, JobId, &'a str, &'a str, Option<&'a str>);

/// Result row of the receive statement.
type ReceiveRow = (Uuid, JobId, String, bool, bool, Option<String>, bool);

/// Receives signals for all requests. Returns the step name, whether another session had locked the lease, and the outcome of each request
/// whose lease contains the job.
pub(super) async fn receive_all(on: &mut PgConnection, asks: &[SignalRequest<'_>]) -> Vec<(String, bool, ReceiveOutcome)> {
    let statement = sqlx::query_as(RECEIVE)
        .bind(asks.iter().map(|ask| ask.0).collect::<Vec<_>>())
        .bind(asks.iter().map(|ask| ask.1).collect::<Vec<_>>())
        .bind(asks.iter().map(|ask| ask.2).collect::<Vec<_>>())
        .bind(vec![1_i16; asks.len()])
        .bind(asks.iter().map(|ask| ask.3).collect::<Vec<_>>())
        .bind(asks.iter().map(|ask| ask.4).collect::<Vec<_>>());
    let mut rows: Vec<ReceiveRow> = statement.fetch_all(on).await.unwrap();
    rows.sort_by(|one, other| one.2.cmp(&other.2));
    rows.into_iter().map(|(_, _, step, locked, found, output, journaled)| (step, locked, Some((found, output, journaled)))).collect()
}

async fn receive(on: &mut PgConnection, (token, job): (Uuid, JobId), step: &str, end: Option<&str>) -> ReceiveOutcome {
    let answers = receive_all(on, &[(token, job, step, "go", end)]).await;
    answers.into_iter().next().and_then(|(_, is_locked, result)| {
        assert!(!is_locked, "no session has locked the lease");
        result
    })
}

pub(super) async fn forget_lease(db: &TestDb, job: JobId) {
    for statement in ["delete from queue.lease where $1 = any (ids)", "delete from queue.job where id = $1"] {
        sqlx::query(statement).bind(job).execute(&db.pool).await.unwrap();
    }
}

#[allow(clippy::unnecessary_wraps, reason = "it is compared with what may have been refused")]
pub(super) fn text(text: &str) -> ReceiveOutcome {
    Some((false, Some(format!("\"{text}\"")), true))
}

#[tokio::test]
async fn a_signal_is_received_in_its_order_and_once() {
    let (db, mut on) = db_by_hand().await;
    let ((ours, token), (theirs, _)) = (leased(&db).await, leased(&db).await);
    for (job, name, payload) in [(theirs, "go", "theirs"), (ours, "stop", "another"), (ours, "go", "first"), (ours, "go", "second")] {
        send(&db, job, name, payload).await;
    }
    let mine = (token, ours.id());
    assert_eq!(receive(&mut on, mine, "a", None).await, text("first"));
    assert_eq!(receive(&mut on, mine, "a", None).await, text("first"), "repeated, after a lost reply");
    assert_eq!(unreceived(&db, ours.id()).await, ["stop", "go"]);
    assert_eq!(receive(&mut on, mine, "b", None).await, text("second"));
    assert_eq!(receive(&mut on, mine, "c", None).await, Some((false, None, false)));
    assert_eq!((unreceived(&db, ours.id()).await, unreceived(&db, theirs.id()).await), (vec!["stop".to_owned()], vec!["go".to_owned()]));
    drop(on);
    for job in [ours, theirs] {
        forget_lease(&db, job.id()).await;
    }
    db.finish().await;
}

#[tokio::test]
async fn a_signal_stays_if_another_answer_was_journaled() {
    let db = db().await;
    let (mut one, mut other) = (db.pool.acquire().await.unwrap(), db.pool.acquire().await.unwrap());
    let (job, token) = leased(&db).await;
    send(&db, job, "go", "first").await;
    send(&db, job, "go", "second").await;
    // The first receive is repeated while its transaction is still in progress, as if its reply had been lost.
    one.run("begin").await;
    assert_eq!(receive(&mut one, (token, job.id()), "a", None).await, text("first"));
    let again = tokio::spawn(async move { receive(&mut other, (token, job.id()), "a", None).await });
    db.until_waiting(1).await;
    one.run("commit").await;
    assert_eq!(again.await.unwrap(), Some((false, None, false)), "it requests it again");
    assert_eq!(receive(&mut one, (token, job.id()), "a", None).await, text("first"));
    assert_eq!(unreceived(&db, job.id()).await, ["go"], "the second goes for nothing");
    drop(one);
    forget_lease(&db, job.id()).await;
    db.finish().await;
}

#[tokio::test]
async fn the_timeout_of_a_wait_is_journaled_once_and_only_without_a_signal() {
    let (db, mut on) = db_by_hand().await;
    let (job, token) = leased(&db).await;
    let mine = (token, job.id());
    let end = format!(
        "insert into queue.step (id, name, attempt, at, ran_ms, until) values ({0}, 'later', 1, now(), 0, now() + interval '1 h'),
        ({0}, 'over', 1, now(), 0, now() - interval '1 s')",
        job.id()
    );
    db.run(&end).await;
    assert_eq!(receive(&mut on, mine, "a", Some("later")).await, Some((false, None, false)));
    assert_eq!(receive(&mut on, mine, "a", Some("over")).await, Some((true, None, true)));
    send(&db, job, "go", "late").await;
    assert_eq!(receive(&mut on, mine, "a", Some("over")).await, Some((true, None, true)), "as it was journaled first");
    assert_eq!(receive(&mut on, mine, "b", Some("over")).await, text("late"), "it is there, and so comes first");
    drop(on);
    forget_lease(&db, job.id()).await;
    db.finish().await;
}

#[tokio::test]
async fn one_job_of_a_lease_is_parked_and_a_cancelling_one_is_cancelled() {
    let (db, mut on) = db_by_hand().await;
    let ((ours, token), (theirs, other)) = (leased(&db).await, leased(&db).await);
    // One of the lease's two jobs is parked, and the other job remains in the lease.
    db.run(&format!("delete from queue.lease where token = '{other}'")).await;
    let both = "update queue.lease set ids = ids || $1, attempts = '{1,2}', crashes = '{0,3}' where token = $2";
    sqlx::query(both).bind(theirs.id()).bind(token).execute(&db.pool).await.unwrap();
    assert!(park(&mut on, PARK, ours.id(), token).await);
    let rest =
        "select count(*) from queue.lease where cardinality(ids) = 1 and attempts = '{2}' and crashes = '{3}' and cancelling is null";
    assert_eq!(db.count(rest).await, 1);
    assert_eq!(db.count("select count(*) from queue.signal_hint").await, 1);
    db.run("update queue.lease set cancelling = ids").await;
    assert!(park(&mut on, PARK, theirs.id(), token).await);
    assert_eq!(db.state(theirs.id()).await, Some(JobState::Cancelled));
    assert_eq!(db.count("select (select count(*) from queue.lease) + (select count(*) from queue.signal_hint)").await, 1);
    drop(on);
    db.finish().await;
}

#[tokio::test]
async fn only_an_awaited_signal_wakes_and_only_the_requested_number_of_hints_is_consumed() {
    let (db, mut on) = db_by_hand().await;
    let (job, token) = leased(&db).await;
    assert!(park(&mut on, PARK, job.id(), token).await);
    send(&db, job, "stop", "not this").await;
    let (other, _) = leased(&db).await;
    send(&db, other, "go", "to another").await;
    let statement = include_str!("../../../../queue-worker/sql/wake_parked.sql");
    let consumed: (i32, Option<i64>, i32) = sqlx::query_as(statement).bind(0_i64).bind(2).fetch_one(&mut *on).await.unwrap();
    assert_eq!((consumed.0, consumed.2), (2, 0));
    assert_eq!((wake(&mut on).await, db.count("select count(*) from queue.signal_hint").await), (0, 0));
    assert_eq!(db.state(job.id()).await, Some(JobState::Parked));
    drop(on);
    forget_lease(&db, other.id()).await;
    db.finish().await;
}

#[tokio::test]
async fn signals_are_deleted_with_a_discarded_dead_letter() {
    let (db, mut on) = db_by_hand().await;
    let (job, token) = leased(&db).await;
    send(&db, job, "go", "now").await;
    assert!(park(&mut on, PARK, job.id(), token).await);
    die(&mut on, job.id()).await;
    job.discard(&db.pool).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.signal").await, 0);
    drop(on);
    db.finish().await;
}

#[tokio::test]
async fn pruning_deletes_at_most_the_requested_number_of_signals_and_skips_none() {
    let db = db().await;
    let ((gone, token), (there, other)) = (leased(&db).await, leased(&db).await);
    let many = "insert into queue.signal (id, name) select j.id, 'go' from queue.job j, generate_series(1, 25)";
    db.run(many).await;
    db.run(&format!("delete from queue.lease where token = '{token}'; delete from queue.job where id = {}", gone.id())).await;
    let (mut after, mut left, mut calls) = (JobId(0), 50, 0);
    while let Some(last) = sqlx::query_scalar::<_, Option<JobId>>(PRUNE).bind(after).bind(10).fetch_one(&db.pool).await.unwrap() {
        let now = db.count("select count(*) from queue.signal").await;
        assert!(left - now <= 10 && calls < 10, "{left} were {now}");
        (after, left, calls) = (last, now, calls + 1);
    }
    assert_eq!((left, super::unreceived(&db, there.id()).await.len()), (25, 25), "those of a job that is there stay");
    db.run(&format!("delete from queue.signal; delete from queue.lease where token = '{other}'")).await;
    db.run(&format!("delete from queue.job where id = {0}", there.id())).await;
    db.finish().await;
}
