//! Tests receives of signals by many jobs in one statement. A receive does not wait for a lease that another session has locked, and no
//! two receives get the same signal.

use std::time::Duration;

use queue_core::{Job as _, JobState};
use sqlx::Connection as _;
use uuid::Uuid;

use super::{
    Part, db, db_by_hand, done, plan,
    races::leased,
    receive, send,
    statements::{ReceiveOutcome, forget_lease, receive_all, text},
    step, unreceived,
};

#[tokio::test]
async fn concurrent_receives_get_one_signal_each_in_order() {
    let (db, mut on) = db_by_hand().await;
    let ((ours, token), (theirs, other)) = (leased(&db).await, leased(&db).await);
    for (job, name, payload) in [(ours, "go", "1"), (theirs, "go", "7"), (ours, "stop", "end"), (ours, "go", "2"), (ours, "go", "3")] {
        send(&db, job, name, payload).await;
    }
    let end = "insert into queue.step (id, name, attempt, at, ran_ms, until) select id, 'over', 1, now(), 0, now() - interval '1 s' from queue.job";
    db.run(end).await;
    let asks = [
        (token, ours.id(), "c", "go", None),
        (other, theirs.id(), "d", "go", None),
        (token, ours.id(), "a", "go", Some("over")),
        (token, ours.id(), "b", "other", Some("over")),
        (token, ours.id(), "e", "other", None),
        (other, ours.id(), "f", "go", None),
        (Uuid::new_v4(), theirs.id(), "g", "stop", None),
    ];
    let received = |pairs: &[(&str, ReceiveOutcome)]| {
        pairs.iter().map(|(name, received)| ((*name).to_owned(), false, received.clone())).collect::<Vec<_>>()
    };
    let nothing = Some((false, None, false));
    let expected =
        received(&[("a", text("2")), ("b", Some((true, None, true))), ("c", text("1")), ("d", text("7")), ("e", nothing.clone())]);
    assert_eq!(receive_all(&mut on, &asks).await, expected);
    assert_eq!(unreceived(&db, ours.id()).await, ["stop", "go"]);
    assert_eq!(receive_all(&mut on, &asks).await, expected, "repeated");
    assert_eq!((unreceived(&db, ours.id()).await, unreceived(&db, theirs.id()).await.len()), (vec!["stop".to_owned(), "go".to_owned()], 0));
    drop(on);
    for job in [ours, theirs] {
        forget_lease(&db, job.id()).await;
    }
    db.finish().await;
}

#[tokio::test]
async fn a_lease_stays_locked_until_the_receives_under_it_are_committed() {
    let db = db().await;
    let (job, token) = leased(&db).await;
    send(&db, job, "go", "now").await;
    let mut receiving = db.pool.begin().await.unwrap();
    receive_all(&mut receiving, &[(token, job.id(), "a", "go", None)]).await;
    assert_eq!(db.count("select count(*) from (select from queue.lease for update skip locked) l").await, 0);
    receiving.rollback().await.unwrap();
    forget_lease(&db, job.id()).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn jobs_whose_leases_are_locked_keep_no_other_from_its_signal_and_none_of_the_handlers_connections() {
    let db = db().await;
    let locked: Vec<_> = (0..12).map(|_| plan([Part::During("go".into(), 6_000)])).collect();
    let mut jobs = Vec::new();
    for job in locked {
        jobs.push(job.enqueue(&db.pool).await.unwrap());
    }
    let worker = db.worker().register::<super::Plan>().queue("default", 30);
    db.run_while(worker, async {
        db.until_count("select coalesce(sum(cardinality(ids)), 0)::bigint from queue.lease", 12).await;
        let mut open = db.connect().await;
        let mut holding = open.begin().await.unwrap();
        sqlx::query("select from queue.lease for update").execute(&mut *holding).await.unwrap();
        for job in &jobs {
            send(&db, *job, "go", "now").await;
        }
        // Wait until every attempt has polled for its signal again and found its lease locked. An attempt polls again after a second.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let other = plan([step("a"), receive("go"), step("b")]).enqueue(&db.pool).await.unwrap();
        send(&db, other, "go", "at once").await;
        db.until(other.id(), JobState::Completed).await;
        assert_eq!(db.count("select count(*) from queue.step where name = 'go'").await, 1, "the other's alone");
        holding.rollback().await.unwrap();
        for job in &jobs {
            db.until(job.id(), JobState::Completed).await;
            assert_eq!(done(&db, job.id()).await.iter().filter(|(what, _)| what == "now").count(), 1);
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn concurrent_waits_of_one_job_share_few_statements() {
    let db = db().await;
    let job = plan([Part::Ballot("vote".into(), 60)]).enqueue(&db.pool).await.unwrap();
    for n in 0..60 {
        send(&db, job, "vote", &n.to_string()).await;
    }
    super::run_to(&db, job.id(), JobState::Completed).await;
    let mut all: Vec<u32> =
        serde_json::from_value::<Vec<String>>(db.output(job.id()).await).unwrap().iter().map(|vote| vote.parse().unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..60).collect::<Vec<_>>(), "each once");
    let statements = db.count("select count(distinct at) from queue.step where name like 'vote/%'").await;
    assert!(statements < 15, "60 waits were {statements} statements");
    db.until_count("select count(*) from queue.signal", 0).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn an_error_of_the_store_during_a_receive_fails_no_attempt() {
    let db = db().await;
    db.run("alter table queue.signal rename to away").await;
    let job = plan([receive("go")]).enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker().register::<super::Plan>(), async {
        db.until(job.id(), JobState::Scheduled).await;
        assert_eq!(db.count("select count(*) from queue.failure").await, 0, "it is put off");
        db.run("alter table queue.away rename to signal").await;
        send(&db, job, "go", "now").await;
        db.until(job.id(), JobState::Completed).await;
    })
    .await;
    assert_eq!(db.count("select count(*) from queue.failure").await, 0);
    db.finish().await;
}
