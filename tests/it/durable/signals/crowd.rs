//! Many signals from transactions that stay open for any time, to jobs that park again and again: none of them is lost. Where whoever parks leaves
//! no hint, as one that looks and then parks, some are.

use std::{sync::Arc, time::Duration};

use queue_core::{Job as _, JobHandle, operate::Signalled};
use sqlx::{Connection as _, PgConnection};
use tests::{TestDb, within};
use tokio::{sync::Mutex, task::JoinSet};

use super::{Part, Plan, db, plan, run};

/// Of each job, one after the other.
const EACH: u32 = 10;

/// How much is sent, and how.
#[derive(Clone, Copy)]
struct Crowd {
    signals: usize,
    /// The longest that a transaction is open.
    held: Duration,
    /// Of one transaction.
    together: usize,
    senders: usize,
}

impl Crowd {
    /// `QUEUE_TEST_SIGNALS=100000` sends so many, from transactions of up to 30 seconds.
    fn wanted() -> Self {
        match std::env::var("QUEUE_TEST_SIGNALS").ok().and_then(|count| count.parse().ok()) {
            Some(signals) => Self { signals, held: Duration::from_secs(30), together: 40, senders: 60 },
            None => Self { signals: 3000, held: Duration::from_secs(1), together: 5, senders: 30 },
        }
    }
}

/// Jobs that wait for all of them together.
async fn wait_for(db: &TestDb, signals: usize) -> Vec<JobHandle<Plan>> {
    let mut jobs = Vec::new();
    for _ in 0..signals / EACH as usize {
        jobs.push(plan([Part::Votes("go".into(), EACH)]).enqueue(&db.pool).await.unwrap());
    }
    jobs
}

/// Sends each job its signals, in any order, from transactions that are open for any time; each says a number of its own.
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
                    assert_eq!(job.signal(&mut tx, "go", &format!("{number}")).await.unwrap(), Signalled::Sent);
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
async fn of_thousands_of_signals_none_is_lost_whenever_their_transactions_end() {
    let (db, crowd) = (db().await, Crowd::wanted());
    let jobs = wait_for(&db, crowd.signals).await;
    let worker = || db.worker().register::<Plan>().queue("default", 64);
    let began = std::time::Instant::now();
    db.run_while(
        worker(),
        db.run_while(worker(), async {
            send_all(&db, &jobs, crowd).await;
            within(Duration::from_mins(2), "all are received", async || db.count(LEFT).await == 0).await;
        }),
    )
    .await;
    println!("{} signals, open for up to {:?}: {:?}", crowd.signals, crowd.held, began.elapsed());
    assert_eq!(db.count("select count(*) from queue.signal").await, 0, "each was received");
    let received = "select count(distinct output) from queue.step where name like 'go/%'";
    assert_eq!(db.count(received).await, i64::try_from(crowd.signals).unwrap(), "once");
    db.finish().await;
}

/// A hint that is left by whoever parks is dropped.
const NO_HINT: &str = "create function queue.no_hint() returns trigger language plpgsql as
    $$ begin return case when current_query() like '%insert into queue.parked%' then null else new end; end $$;
  create trigger no_hint before insert on queue.signal_hint for each row execute function queue.no_hint()";

#[tokio::test]
#[ignore = "deep"]
async fn where_whoever_parks_leaves_no_hint_signals_are_lost() {
    let db = db().await;
    run(&db, NO_HINT).await;
    let crowd = Crowd { signals: 400, held: Duration::from_millis(300), together: 4, senders: 10 };
    let idle = "select (select count(*) from queue.ready) + (select count(*) from queue.scheduled) + (select count(*) from queue.lease)
        + (select count(*) from queue.signal_hint)";
    let lost = "select count(*) from queue.signal s join queue.parked p on p.id = s.id and s.name = any (p.names)";
    // Which of them come at the wrong moment is luck.
    for round in 1.. {
        let jobs = wait_for(&db, crowd.signals).await;
        db.run_while(db.worker().register::<Plan>().queue("default", 64), async {
            send_all(&db, &jobs, crowd).await;
            within(Duration::from_mins(1), "nothing moves any more", async || db.count(idle).await == 0).await;
        })
        .await;
        let (lost, left) = (db.count(lost).await, db.count(LEFT).await);
        println!("round {round}: {lost} of {} signals are there, and {left} of {} jobs wait for them", crowd.signals, jobs.len());
        if lost > 0 && left > 0 {
            break;
        }
        assert!(round < 10, "a look and then a park loses some");
    }
    run(&db, "drop trigger no_hint on queue.signal_hint; drop function queue.no_hint").await;
    db.finish().await;
}
