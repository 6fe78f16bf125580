//! Tests the statements for ordering keys, with two transactions in every order that could block a key permanently or let two of its jobs
//! run at the same time.

use queue_core::{Batch, Error, Job as _, JobRef, JobState, Queue, Store};
use sqlx::Connection as _;
use tests::{Do, Sql as _, TestDb, operate, protocol};

use super::{claim, enqueue, enqueue_skipping, step, unblock};

#[tokio::test]
async fn one_job_of_a_key_is_ready_and_the_others_are_blocked_behind_it() {
    let (db, mut c) = TestDb::with_connection().await;
    let jobs = [enqueue(&mut c, "a").await, enqueue(&mut c, "a").await, enqueue(&mut c, "a").await];
    let other = enqueue(&mut c, "b").await;
    assert_eq!(db.state(jobs[0]).await, Some(JobState::Ready));
    assert_eq!(db.state(jobs[1]).await, Some(JobState::Blocked));
    assert_eq!(step(&mut c, "complete").await, [jobs[0], other]);
    for verdict in ["retry", "snooze", "release"] {
        assert_eq!(step(&mut c, verdict).await, [jobs[1]], "it stays the head");
        assert_eq!(db.state(jobs[2]).await, Some(JobState::Blocked));
        c.run("update queue.scheduled set run_at = now()").await;
        operate::promote(&mut c, 10).await.unwrap();
    }
    assert_eq!(step(&mut c, "forget").await, [jobs[1]]);
    assert_eq!(step(&mut c, "plain").await, [jobs[2]]);
    assert_eq!(db.count("select count(*) from queue.active_key").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_commit_that_comes_after_the_settle_of_the_job_before_it_is_not_forgotten() {
    let (db, mut c, mut producer) = TestDb::with_connections().await;
    let first = enqueue(&mut c, "a").await;
    let lease = claim(&mut c).await;
    let mut tx = producer.begin().await.unwrap();
    let late = enqueue(&mut tx, "a").await;
    // Neither the settle nor `unblock` waits for the producer.
    assert!(protocol::settle(&mut c, &lease.all("complete")).await.unwrap().is_empty());
    assert_eq!(unblock(&mut c).await, 0);
    assert_eq!(db.state(first).await, Some(JobState::Completed));
    tx.commit().await.unwrap();
    assert_eq!(unblock(&mut c).await, 1, "its own hint");
    assert_eq!(step(&mut c, "complete").await, [late]);
    db.finish().await;
}

#[tokio::test]
async fn a_settle_that_commits_after_the_hint_of_a_producer_was_consumed_leaves_another() {
    let (db, mut c, mut settling) = TestDb::with_connections().await;
    enqueue(&mut c, "a").await;
    let lease = claim(&mut c).await;
    let mut tx = settling.begin().await.unwrap();
    assert!(protocol::settle(&mut tx, &lease.all("complete")).await.unwrap().is_empty());
    let second = enqueue(&mut c, "a").await;
    assert_eq!(db.state(second).await, Some(JobState::Blocked), "the first is not seen to have finished");
    assert_eq!(unblock(&mut c).await, 0, "nor is the key free");
    tx.commit().await.unwrap();
    assert_eq!(unblock(&mut c).await, 1);
    assert_eq!(step(&mut c, "complete").await, [second]);
    db.finish().await;
}

#[tokio::test]
async fn two_promoters_do_not_wait_and_lose_no_key() {
    let (db, mut c, mut other) = TestDb::with_connections().await;
    enqueue(&mut c, "a").await;
    let second = enqueue(&mut c, "a").await;
    step(&mut c, "complete").await;
    // The second job is ready now. Block it again, with a hint and without an active job of the key.
    let back = "with gone as (delete from queue.ready returning id, lane), free as (delete from queue.active_key returning key, seq)
      insert into queue.blocked (key, seq, id, lane) select key, seq, id, lane from gone, free";
    c.run(back).await;
    let hint = "insert into queue.key_hint (key) select key from queue.blocked";
    c.run(hint).await;
    let mut tx = other.begin().await.unwrap();
    assert_eq!(unblock(&mut tx).await, 1);
    c.run(hint).await;
    assert_eq!(unblock(&mut c).await, 0, "another session works on it");
    assert_eq!(db.count("select count(*) from queue.key_hint").await, 2, "the hint stays, besides the one taken by the other");
    tx.rollback().await.unwrap();
    assert_eq!(unblock(&mut c).await, 1, "the other did not");
    assert_eq!(step(&mut c, "complete").await, [second]);
    db.finish().await;
}

#[tokio::test]
async fn a_producer_with_an_old_snapshot_goes_to_the_end_of_its_key() {
    let (db, mut c, mut old) = TestDb::with_connections().await;
    let mut tx = old.begin_with("begin isolation level repeatable read").await.unwrap();
    tx.run("select count(*) from queue.job").await;
    let first = enqueue(&mut c, "a").await;
    let second = enqueue(&mut c, "a").await;
    let third = enqueue(&mut tx, "a").await;
    tx.commit().await.unwrap();
    for job in [first, second, third] {
        assert_eq!(step(&mut c, "complete").await, [job]);
    }
    db.finish().await;
}

#[tokio::test]
async fn a_producer_under_a_key_waits_for_the_previous_producer_and_for_no_other() {
    let (db, mut c, mut other) = TestDb::with_connections().await;
    other.run("set lock_timeout = '100ms'").await;
    let mut tx = c.begin().await.unwrap();
    let first = enqueue(&mut tx, "a").await;
    let job = || Do::ok();
    let single = job().enqueue(&mut other).key("a").await.map(|_| ());
    let mut batch = Batch::new();
    batch.add(job()).unwrap().key("b");
    batch.add(job()).unwrap().key("a");
    let many = batch.enqueue(&mut other).await.map(|_| ());
    for waited in [single, many] {
        let Err(Error::Database(sqlx::Error::Database(error))) = waited else { panic!("{waited:?}") };
        assert_eq!(error.code().as_deref(), Some("55P03"));
    }
    other.run("set lock_timeout = 0").await;
    let free = enqueue(&mut other, "b").await;
    tx.commit().await.unwrap();
    let second = enqueue(&mut other, "a").await;
    assert_eq!(step(&mut c, "complete").await, [first, free]);
    assert_eq!(step(&mut c, "complete").await, [second]);
    db.finish().await;
}

#[tokio::test]
async fn many_keys_are_locked_in_one_order_or_all_together() {
    let (db, mut holder, mut c) = TestDb::with_connections().await;
    let keys: Vec<String> = (0..30).map(|n| n.to_string()).collect();
    let stripes = "select array_agg(distinct queue.key_id('q', k) & 1023) from unnest($1::text[]) k";
    let stripes: Vec<i64> = sqlx::query_scalar(stripes).bind(&keys).fetch_one(&mut c).await.unwrap();
    let locked = "select 1024 - count(*) from (select from queue.stripe s where s.purpose = 'keys' for update skip locked) free";
    let lock = Store::default().sql(include_str!("../../../queue-core/sql/lock_keys.sql"));
    let mut held = holder.begin().await.unwrap();
    sqlx::query("select queue.lock_key($1)").bind(stripes.last()).execute(&mut *held).await.unwrap();
    let mut tx = c.begin().await.unwrap();
    let queues = vec!["q"; keys.len()];
    let waits = sqlx::query(lock).bind(&queues).bind(&keys).bind(false);
    let (done, ()) = tokio::join!(waits.execute(&mut *tx), async {
        db.until_waiting(1).await;
        assert_eq!(db.count(locked).await, i64::try_from(stripes.len()).unwrap(), "the last one is the other's");
        held.rollback().await.unwrap();
    });
    done.unwrap();
    sqlx::query(lock).bind(&queues[..1]).bind(&keys[..1]).bind(true).execute(&mut *tx).await.unwrap();
    assert_eq!(db.count(locked).await, 1024);
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_dead_letter_blocks_its_key_until_an_operator_decides() {
    let (db, mut c) = TestDb::with_connection().await;
    let jobs = [enqueue(&mut c, "a").await, enqueue(&mut c, "a").await, enqueue(&mut c, "a").await];
    assert_eq!(step(&mut c, "dead").await, [jobs[0]]);
    assert!(step(&mut c, "complete").await.is_empty(), "it holds up its key");
    let late = enqueue(&mut c, "a").await;
    assert_eq!(unblock(&mut c).await, 0);
    JobRef::from_id(jobs[0]).requeue(&mut c).await.unwrap();
    assert_eq!(step(&mut c, "dead").await, [jobs[0]], "requeued, it keeps its place");
    JobRef::from_id(jobs[0]).discard(&mut c).await.unwrap();
    unblock(&mut c).await;
    for job in [jobs[1], jobs[2], late] {
        assert_eq!(step(&mut c, "complete").await, [job]);
    }
    JobRef::from_id(jobs[1]).requeue(&mut c).await.unwrap();
    assert_eq!(db.state(jobs[1]).await, Some(JobState::Blocked), "until its key is checked");
    unblock(&mut c).await;
    assert_eq!(step(&mut c, "complete").await, [jobs[1]], "a finished one goes to the end");
    db.finish().await;
}

#[tokio::test]
async fn a_dead_letter_whose_retention_has_ended_no_longer_blocks_its_key() {
    let (db, mut c) = TestDb::with_connection().await;
    let jobs = [enqueue(&mut c, "a").await, enqueue(&mut c, "a").await];
    let skipping = [enqueue_skipping(&mut c, "b").await, enqueue_skipping(&mut c, "b").await, enqueue_skipping(&mut c, "b").await];
    assert_eq!(step(&mut c, "dead").await, [jobs[0], skipping[0]]);
    assert_eq!(operate::prune_dead(&mut c).await.unwrap(), 2);
    assert_eq!(unblock(&mut c).await, 1);
    assert_eq!(db.state(skipping[2]).await, Some(JobState::Blocked), "the other key had gone on, and has one head still");
    assert_eq!(step(&mut c, "complete").await, [jobs[1], skipping[1]]);
    assert_eq!(step(&mut c, "complete").await, [skipping[2]]);
    assert_eq!(db.count("select count(*) from queue.active_key").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_key_that_skips_continues_without_its_dead_jobs() {
    let (db, mut c) = TestDb::with_connection().await;
    let jobs = [enqueue_skipping(&mut c, "a").await, enqueue_skipping(&mut c, "a").await, enqueue_skipping(&mut c, "a").await];
    assert_eq!(step(&mut c, "dead").await, [jobs[0]]);
    assert_eq!(db.state(jobs[1]).await, Some(JobState::Ready));
    JobRef::from_id(jobs[0]).requeue(&mut c).await.unwrap();
    assert_eq!(db.state(jobs[0]).await, Some(JobState::Blocked), "its place is gone");
    for job in [jobs[1], jobs[2], jobs[0]] {
        assert_eq!(step(&mut c, "complete").await, [job]);
    }
    let alone = enqueue_skipping(&mut c, "a").await;
    assert_eq!(step(&mut c, "dead").await, [alone]);
    JobRef::from_id(alone).requeue(&mut c).await.unwrap();
    assert_eq!(unblock(&mut c).await, 1, "no other session left a hint");
    assert_eq!(step(&mut c, "complete").await, [alone]);
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_ends_its_process_too_often_frees_a_key_that_skips_and_no_other() {
    let (db, mut c) = TestDb::with_connection().await;
    let skipping = [enqueue_skipping(&mut c, "a").await, enqueue_skipping(&mut c, "a").await];
    let blocking = [enqueue(&mut c, "b").await, enqueue(&mut c, "b").await];
    for _ in 0..3 {
        let worker = protocol::register(&mut c).await.unwrap();
        assert_eq!(protocol::claim(&mut c, worker, 10).await.unwrap().jobs.len(), 2, "the heads, and no others");
        protocol::silence(&mut c, worker).await.unwrap();
        assert_eq!(protocol::recover(&mut c).await.unwrap(), 2);
        unblock(&mut c).await;
    }
    assert_eq!([db.state(skipping[0]).await, db.state(blocking[0]).await], [Some(JobState::Dead); 2]);
    assert_eq!(db.state(skipping[1]).await, Some(JobState::Ready));
    assert_eq!(db.state(blocking[1]).await, Some(JobState::Blocked));
    db.finish().await;
}

#[tokio::test]
async fn a_blocked_job_can_be_cancelled_and_the_head_frees_its_key() {
    let (db, mut c) = TestDb::with_connection().await;
    let jobs = [enqueue(&mut c, "a").await, enqueue(&mut c, "a").await, enqueue(&mut c, "a").await];
    JobRef::from_id(jobs[1]).cancel(&mut c).await.unwrap();
    JobRef::from_id(jobs[0]).cancel(&mut c).await.unwrap();
    assert_eq!([db.state(jobs[0]).await, db.state(jobs[1]).await], [Some(JobState::Cancelled); 2]);
    assert_eq!(unblock(&mut c).await, 1);
    JobRef::from_id(jobs[2]).cancel(&mut c).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.active_key").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_stale_verdict_frees_no_key() {
    let (db, mut c) = TestDb::with_connection().await;
    let jobs = [enqueue(&mut c, "a").await, enqueue(&mut c, "a").await];
    let worker = protocol::register(&mut c).await.unwrap();
    let stale = protocol::claim(&mut c, worker, 10).await.unwrap();
    protocol::silence(&mut c, worker).await.unwrap();
    protocol::recover(&mut c).await.unwrap();
    assert_eq!(protocol::settle(&mut c, &stale.all("complete")).await.unwrap().len(), 1, "refused");
    assert_eq!(unblock(&mut c).await, 0);
    assert_eq!(db.state(jobs[1]).await, Some(JobState::Blocked));
    assert_eq!(step(&mut c, "complete").await, [jobs[0]]);
    assert_eq!(step(&mut c, "complete").await, [jobs[1]]);
    db.finish().await;
}

#[tokio::test]
async fn blocked_jobs_outlive_their_day_and_are_still_listed() {
    let (db, mut c) = TestDb::with_connection().await;
    let jobs = [enqueue(&mut c, "a").await, enqueue(&mut c, "a").await];
    assert!(operate::drop_day(&mut c).await.unwrap());
    let record = JobRef::from_id(jobs[1]).find(&mut c).await.unwrap();
    assert_eq!((record.state, record.attempts), (JobState::Blocked, 0));
    let page = Queue::on(&mut c).jobs().state(JobState::Blocked).list().await.unwrap();
    assert_eq!(page.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [jobs[1]]);
    let counts = Queue::on(&mut c).counts().await.unwrap();
    assert!(counts.iter().any(|count| count.state == JobState::Blocked && count.jobs == 1), "{counts:?}");
    for job in jobs {
        assert_eq!(step(&mut c, "complete").await, [job]);
    }
    db.finish().await;
}
