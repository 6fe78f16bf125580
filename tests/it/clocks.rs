//! Tests steps of the database clock, which are simulated by shifting the stored lease deadlines. The worker's own clock is never read.

use std::time::{Duration, Instant};

use queue_core::{Job as _, JobId, JobState};
use sqlx::{Connection as _, PgConnection};
use tests::{Act, Do, TestDb, effects, eventually, within};

/// Shifts every lease deadline, as if the database clock had been ahead by the interval `by` when the deadline was written. Returns the
/// number of workers.
async fn step(db: &TestDb, by: &str) -> u64 {
    let statement = "update queue.worker set expires_at = expires_at + $1::interval";
    sqlx::query(statement).bind(by).execute(&db.pool).await.unwrap().rows_affected()
}

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

/// Returns an [`Act`] that takes 2.5 s on the first attempt and 0.1 s on later attempts.
fn twice(first: &str) -> Act {
    let slowly = |text: &str, ms| Box::new(Act::Slowly(ms, Box::new(Act::Ok(text.to_owned()))));
    Act::First(slowly(first, 2500), slowly("second", 100))
}

#[tokio::test]
async fn f30_a_database_clock_that_jumps_ahead_repeats_work_and_lets_no_stale_write_land() {
    let db = TestDb::new().await;
    db.run_while(db.worker().lease_ttl(Duration::from_secs(3)), async {
        db.run_while(db.worker().lease_ttl(Duration::from_secs(3)), async {
            let mut jobs = Vec::new();
            for _ in 0..4 {
                jobs.push(enqueue(&db, twice("first")).await);
            }
            eventually("all have begun", async || db.count("select count(*) from effect").await == 4).await;
            let before: Vec<uuid::Uuid> = sqlx::query_scalar("select id from queue.worker").fetch_all(&db.pool).await.unwrap();
            assert_eq!(step(&db, "-10 minutes").await, 2);
            for job in &jobs {
                within(Duration::from_secs(20), "it is completed", async || db.state(*job).await == Some(JobState::Completed)).await;
                assert_eq!(effects(&db.pool, *job).await.unwrap(), 2, "work may repeat");
            }
            let outputs: Vec<(String, i16)> =
                sqlx::query_as("select output #>> '{}', attempts from queue.done").fetch_all(&db.pool).await.unwrap();
            assert_eq!(outputs, vec![("second".to_owned(), 2); 4], "no stale verdict landed");
            eventually("both continue under new identities", async || {
                let living: Vec<uuid::Uuid> =
                    sqlx::query_scalar("select id from queue.worker where expires_at > now()").fetch_all(&db.pool).await.unwrap();
                living.len() == 2 && living.iter().all(|id| !before.contains(id))
            })
            .await;
        })
        .await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f77_a_database_clock_that_jumps_back_keeps_living_leases_and_delays_recovery_by_at_most_a_lease() {
    let db = TestDb::new().await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    let held = enqueue(&db, Act::Ok(String::new())).await;
    let ghost = tests::protocol::register(&mut connection).await.unwrap();
    assert_eq!(tests::protocol::claim(&mut connection, ghost, 1).await.unwrap().ids(), [held]);
    sqlx::query("update queue.worker set ttl = '2 s', expires_at = now() + '2 s'").execute(&mut connection).await.unwrap();
    assert_eq!(step(&db, "1 day").await, 1);
    db.run_while(db.worker().lease_ttl(Duration::from_secs(2)), async {
        let began = Instant::now();
        // The recovery waits up to two seconds until the lease expires, and up to two more seconds for the next run of housekeeping.
        eventually("what the dead held is completed", async || db.state(held).await == Some(JobState::Completed)).await;
        assert!(began.elapsed() > Duration::from_secs(1), "it had the time of a lease by the clock of now");
        let job = enqueue(&db, Act::Sleep(3500)).await;
        db.until(job, JobState::Running).await;
        let before = "select count(*) from queue.worker where expires_at > now() + interval '1 hour'";
        step(&db, "1 day").await;
        eventually("the next beat is by the clock of now", async || db.count(before).await == 0).await;
        db.until(job, JobState::Completed).await;
        assert_eq!(effects(&db.pool, job).await.unwrap(), 1, "the living keeps its job");
    })
    .await;
    db.finish().await;
}
