//! Sends many signals to jobs that park repeatedly, from transactions of different durations. No signal is lost.

use std::{sync::Arc, time::Duration};

use queue_core::{Job as _, JobHandle, operate::SignalOutcome};
use sqlx::{Connection as _, PgConnection};
use tests::TestDb;
use tokio::{sync::Mutex, task::JoinSet};

use super::{Part, Plan, db, plan};

/// Number of signals per job, received one after the other.
const EACH: u32 = 10;

/// Load of the test: the number of signals, and the duration, size and concurrency of the transactions that send them.
#[derive(Clone, Copy)]
struct Crowd {
    signals: usize,
    /// Maximum duration of a transaction.
    held: Duration,
    /// Number of signals per transaction.
    together: usize,
    senders: usize,
}

impl Crowd {
    /// Returns the load of the test. `QUEUE_TEST_SIGNALS=100000` sends that number of signals, from transactions of up to 30 seconds.
    fn from_env() -> Self {
        match std::env::var("QUEUE_TEST_SIGNALS").ok().and_then(|count| count.parse().ok()) {
            Some(signals) => Self { signals, held: Duration::from_secs(30), together: 40, senders: 60 },
            None => Self { signals: 3000, held: Duration::from_secs(1), together: 5, senders: 30 },
        }
    }
}

/// Creates jobs that together receive `signals` signals.
async fn wait_for(db: &TestDb, signals: usize) -> Vec<JobHandle<Plan>> {
    let mut jobs = Vec::new();
    for _ in 0..signals / EACH as usize {
        jobs.push(plan([Part::Votes("go".into(), EACH)]).enqueue(&db.pool).await.unwrap());
    }
    jobs
}

/// Sends all signals to the jobs in random order, from transactions of random duration. Each signal carries a unique number.
async fn send_all(db: &TestDb, jobs: &[JobHandle<Plan>], crowd: Crowd) {
    let mut deck: Vec<JobHandle<Plan>> = jobs.iter().flat_map(|job| std::iter::repeat_n(*job, EACH as usize)).collect();
    fastrand::shuffle(&mut deck);
    let mut hands = deck.chunks(crowd.together).map(<[_]>::to_vec).zip((0..).step_by(crowd.together)).collect::<Vec<_>>();
    hands.reverse();
    let (hands, mut senders) = (Arc::new(Mutex::new(hands)), JoinSet::new());
    for _ in 0..crowd.senders {
        let (hands, url) = (Arc::clone(&hands), db.url.clone());
        senders.spawn(async move {
            let mut on = PgConnection::connect(&url).await.unwrap();
            loop {
                let hand = hands.lock().await.pop();
                let Some((hand, first)) = hand else { break };
                let mut tx = on.begin().await.unwrap();
                for (job, number) in hand.iter().zip(first..) {
                    assert_eq!(job.signal(&mut tx, "go", &format!("{number}")).await.unwrap(), SignalOutcome::Sent);
                }
                tokio::time::sleep(crowd.held.mul_f64(fastrand::f64())).await;
                tx.commit().await.unwrap();
            }
            on.close().await.unwrap();
        });
    }
    while let Some(done) = senders.join_next().await {
        done.unwrap();
    }
}

const LEFT: &str = "select count(*) from queue.jobs where state <> 'completed'";

#[tokio::test]
#[ignore = "deep"]
async fn of_thousands_of_signals_none_is_lost_in_any_commit_order() {
    let (db, crowd) = (db().await, Crowd::from_env());
    let jobs = wait_for(&db, crowd.signals).await;
    let worker = || db.worker().register::<Plan>().queue("default", 64);
    db.run_while(
        worker(),
        db.run_while(worker(), async {
            send_all(&db, &jobs, crowd).await;
            db.until_count(LEFT, 0).await;
        }),
    )
    .await;
    assert_eq!(db.count("select count(*) from queue.signal").await, 0, "each was received");
    let received = "select count(distinct output) from queue.step where name like 'go/%'";
    assert_eq!(db.count(received).await, i64::try_from(crowd.signals).unwrap(), "once");
    db.finish().await;
}
