//! Tests the SQL statement that restarts jobs. A restart requires the job's lease, is atomic, and happens once. It waits for transactions
//! that are writing under the lease, and deletes the steps that they journaled.

use queue_core::{JobId, JobState};
use sqlx::PgConnection;
use tests::TestDb;
use uuid::Uuid;

use super::{db, db_by_hand, leased, payload};

const RESTART: &str = include_str!("../../../../queue-worker/sql/restart.sql");
const JOURNAL: &str = include_str!("../../../../queue-worker/sql/journal.sql");

/// Restarts the jobs, each with the given text as the field `is` of its payload. Returns the jobs whose restart was rejected.
async fn restart(on: &mut PgConnection, restarts: &[(Uuid, JobId, &str)]) -> Vec<(Uuid, JobId)> {
    let statement = sqlx::query_as(RESTART)
        .bind(restarts.iter().map(|one| one.0).collect::<Vec<_>>())
        .bind(restarts.iter().map(|one| one.1).collect::<Vec<_>>())
        .bind(vec![1_i16; restarts.len()])
        .bind(vec!["durable_plan"; restarts.len()])
        .bind(restarts.iter().map(|one| format!("{{\"parts\": [], \"is\": \"{}\"}}", one.2)).collect::<Vec<_>>());
    statement.fetch_all(on).await.unwrap()
}

async fn is(db: &TestDb, job: JobId) -> Option<String> {
    payload(db, job).await["is"].as_str().map(str::to_owned)
}

async fn forget(db: &TestDb) {
    db.run("delete from queue.lease; delete from queue.ready; delete from queue.step; delete from queue.job").await;
}

#[tokio::test]
async fn a_job_is_restarted_once_and_whole() {
    let (db, mut on) = db_by_hand().await;
    let ((ours, token), (theirs, _)) = (leased(&db).await, leased(&db).await);
    let (ours, theirs) = (ours.id(), theirs.id());
    let written = "insert into queue.step (id, name, attempt, at, ran_ms) select id, 'a', 1, now(), 0 from queue.job;
        insert into queue.child (parent, name, id) select id, 'b', id + 1 from queue.job;
        insert into queue.progress (id, attempt) select id, 1 from queue.job;
        insert into queue.gather (parent, name) select id, 'c' from queue.job;
        update queue.job set system = '{\"expires_at\": \"2020-01-01T00:00:00.000000Z\", \"skips\": true}'";
    db.run(written).await;
    let rest = "select (select count(*) from queue.lease) + (select count(*) from queue.step) + (select count(*) from queue.child)
        + (select count(*) from queue.progress) + (select count(*) from queue.gather)";
    // A restart that is rolled back, for example because its session ends before the commit, changes nothing.
    let mut open = db.pool.begin().await.unwrap();
    assert_eq!(restart(&mut open, &[(token, ours, "undone")]).await, []);
    open.rollback().await.unwrap();
    assert_eq!((db.count(rest).await, is(&db, ours).await), (10, None));
    assert_eq!(restart(&mut on, &[(token, ours, "new")]).await, []);
    assert_eq!((db.count(rest).await, is(&db, ours).await, is(&db, theirs).await), (5, Some("new".to_owned()), None));
    assert_eq!(restart(&mut on, &[(token, ours, "twice")]).await, [(token, ours)], "repeated, after a lost reply");
    assert_eq!((db.state(ours).await, is(&db, ours).await), (Some(JobState::Ready), Some("new".to_owned())));
    let entry = format!("select count(*) from queue.ready where id = {ours} and attempts = 0 and crashes = 0 and seq > id");
    let kept = format!("select count(*) from queue.job where system = '{{\"skips\": true}}' and id = {ours}");
    assert_eq!((db.count(&entry).await, db.count(&kept).await), (1, 1), "at the end of its lane, and it does not expire");
    let of_others = format!("select count(*) from queue.job where system ? 'expires_at' and id = {theirs}");
    assert_eq!(db.count(&of_others).await, 1);
    drop(on);
    db.run("delete from queue.child; delete from queue.progress; delete from queue.gather").await;
    forget(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn others_of_the_lease_stay_each_has_its_own_payload_and_a_cancelling_job_is_cancelled() {
    let (db, mut on) = db_by_hand().await;
    let (mut jobs, mut tokens) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let (job, token) = leased(&db).await;
        jobs.push(job.id());
        tokens.push(token);
    }
    let (first, second) = (tokens[0], tokens[1]);
    db.run(&format!("delete from queue.lease where token in ('{}', '{}')", tokens[2], tokens[3])).await;
    for (token, more) in [(first, jobs[2]), (second, jobs[3])] {
        let both = "update queue.lease set ids = ids || $1, attempts = '{1,2}', crashes = '{0,3}' where token = $2";
        sqlx::query(both).bind(more).bind(token).execute(&db.pool).await.unwrap();
    }
    assert_eq!(restart(&mut on, &[(first, jobs[0], "one"), (second, jobs[1], "two")]).await, []);
    assert_eq!((is(&db, jobs[0]).await, is(&db, jobs[1]).await), (Some("one".to_owned()), Some("two".to_owned())));
    let left = "select count(*) from queue.lease where cardinality(ids) = 1 and attempts = '{2}' and crashes = '{3}'";
    assert_eq!(db.count(left).await, 2);
    for (token, job) in [(first, jobs[2]), (second, jobs[3])] {
        assert_eq!(db.count(&format!("select count(*) from queue.lease where token = '{token}' and ids = '{{{job}}}'")).await, 1);
    }
    // The remaining two jobs become heads of ordering keys, and one of them is being cancelled.
    let head = format!(
        "update queue.job set key = 7 where id in ({0}, {1}); update queue.lease set cancelling = ids where token = '{2}';
        insert into queue.active_key (key, seq, id) values (7, 1, {0}), (8, 1, {1})",
        jobs[2], jobs[3], first
    );
    db.run(&head).await;
    assert_eq!(restart(&mut on, &[(first, jobs[2], "three"), (second, jobs[3], "four")]).await, []);
    assert_eq!((db.state(jobs[2]).await, is(&db, jobs[2]).await), (Some(JobState::Cancelled), None));
    assert_eq!((db.state(jobs[3]).await, is(&db, jobs[3]).await), (Some(JobState::Ready), Some("four".to_owned())));
    assert_eq!(db.count("select sum(key)::bigint from queue.active_key").await, 8, "a restarted job keeps its own");
    assert_eq!(db.count("select count(*) from queue.key_hint where key = 7").await, 1);
    db.run("delete from queue.active_key; delete from queue.key_hint; delete from queue.done").await;
    drop(on);
    forget(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn a_step_whose_commit_is_in_flight_is_deleted_with_the_journal() {
    let db = db().await;
    let (job, token) = leased(&db).await;
    let mut open = db.pool.begin().await.unwrap();
    let journal = sqlx::query(JOURNAL).bind([token]).bind([job.id()]).bind(["late"]).bind([1_i16]).bind([5]);
    journal.bind([None::<f64>]).bind(["1"]).execute(&mut *open).await.unwrap();
    let mut other = db.connect().await;
    let id = job.id();
    let restarting = tokio::spawn(async move { restart(&mut other, &[(token, id, "new")]).await });
    db.until_waiting(1).await;
    open.commit().await.unwrap();
    assert_eq!(restarting.await.unwrap(), []);
    assert_eq!(db.count("select count(*) from queue.step").await, 0, "the new journal begins empty");
    // A step journaled after the restart is rejected.
    let journal = sqlx::query(JOURNAL).bind([token]).bind([id]).bind(["later"]).bind([1_i16]).bind([5]);
    let accepted = journal.bind([None::<f64>]).bind(["1"]).fetch_all(&db.pool).await.unwrap();
    assert_eq!((accepted.len(), db.count("select count(*) from queue.step").await), (0, 0));
    forget(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn sleeping_workers_are_notified() {
    let (db, mut on) = db_by_hand().await;
    let (job, token) = leased(&db).await;
    let mut listening = db.listen("wake").await;
    db.run("insert into queue.idle (queue, worker) values ('default', gen_random_uuid())").await;
    assert_eq!(restart(&mut on, &[(token, job.id(), "new")]).await, []);
    let notification = tokio::time::timeout(std::time::Duration::from_secs(30), listening.recv()).await.unwrap().unwrap();
    assert_eq!(notification.payload(), "default");
    drop((on, listening));
    db.run("delete from queue.idle").await;
    forget(&db).await;
    db.finish().await;
}
