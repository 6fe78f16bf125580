//! Tests key rotation and changes of job types. Older payloads stay readable, and the store records the key of each payload.

use queue_core::{Context, Handler, Job as _, JobId, JobResult, JobState, Keyring, job, schedule::Schedule, use_keyring};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;
use tests::TestDb;

use super::{CARD, dead, give, sealed, secret, stored, tamper};

sealed!(Turned, "seal_turned", "turned");

/// Returns the documented statement that lists the keys still in use.
fn in_use() -> String {
    let page = include_str!("../../../docs/SEALED.md");
    let (_, rest) = page.split_once("```sql\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[tokio::test]
async fn after_a_change_of_keys_new_jobs_are_sealed_with_the_new_one_and_old_ones_are_read_until_none_is_left() {
    let db = TestDb::new().await;
    give("turned", "2025", 1);
    let old = Turned::card().enqueue(&db.pool).await.unwrap().id();
    let daily = Schedule::every(std::time::Duration::from_hours(24)).job(&Turned::card());
    queue_core::Queue::new(&db.pool).schedule("daily").create(&daily).await.unwrap();
    use_keyring("turned", Keyring::new("2026", secret(2)).older("2025", secret(1))).unwrap();
    let new = Turned::card().enqueue(&db.pool).await.unwrap().id();
    assert!(stored(&db, old).await.contains("/turned/2025/") && stored(&db, new).await.contains("/turned/2026/"));
    let used = async || -> Vec<(String, String, i64, i64)> { sqlx::query_as(AssertSqlSafe(in_use())).fetch_all(&db.pool).await.unwrap() };
    let row = |key: &str, jobs, schedules| ("turned".to_owned(), key.to_owned(), jobs, schedules);
    assert_eq!(used().await, [row("2025", 1, 1), row("2026", 1, 0)]);
    db.run_until_idle(Worker::new(db.pool.clone()).register::<Turned>()).await;
    for job in [old, new] {
        assert_eq!(db.state(job).await, Some(JobState::Completed));
    }
    assert_eq!(used().await, [row("2025", 0, 1)], "finished ones need no key");
    queue_core::Queue::new(&db.pool).schedule("daily").create(&daily).await.unwrap();
    assert_eq!(used().await, [row("2026", 0, 1)], "declared again, a schedule is sealed again");
    db.finish().await;
}

/// Old version of the job type.
#[job(send_only, name = "seal_version", seal = "versions", aliases = ["seal_version_before"])]
#[derive(Serialize, Deserialize)]
struct First {
    card: String,
}

/// New version of the job type.
#[job(send_only, name = "seal_version", seal = "versions", version = 2, upgrade = from_first, output = usize, aliases = ["seal_version_before"])]
#[derive(Serialize, Deserialize)]
struct Second {
    cards: Vec<String>,
}

fn from_first(first: First) -> Result<Second, &'static str> {
    if first.card.is_empty() { Err("there is no card") } else { Ok(Second { cards: vec![first.card] }) }
}

impl Handler for Second {
    async fn run(self, _: &Context) -> JobResult<usize> {
        Ok(self.cards.len())
    }
}

/// Job type under its earlier name.
#[job(send_only, name = "seal_version_before", seal = "versions")]
#[derive(Serialize, Deserialize)]
struct Before {
    card: String,
}

#[tokio::test]
async fn each_version_is_opened_in_its_sealed_version_and_then_upgraded() {
    give("versions", "k", 1);
    let db = TestDb::new().await;
    let first = First { card: CARD.to_owned() }.enqueue(&db.pool).await.unwrap().id();
    let second = Second { cards: vec![CARD.to_owned(); 2] }.enqueue(&db.pool).await.unwrap().id();
    let alias = Before { card: CARD.to_owned() }.enqueue(&db.pool).await.unwrap().id();
    let refused = First { card: String::new() }.enqueue(&db.pool).await.unwrap().id();
    // Replacing a job's payload with a payload of another version also changes the version of the job.
    First { card: CARD.to_owned() }.enqueue(&db.pool).unique("one").await.unwrap();
    let replaces = Second { cards: vec![CARD.to_owned(); 3] }.enqueue(&db.pool).unique("one");
    let replaced = replaces.on_conflict(queue_core::OnConflict::Replace).await.unwrap().id();
    // Stores the sealed payload of the first version in a job of the second version. The worker must reject this payload.
    let moved = Second { cards: Vec::new() }.enqueue(&db.pool).await.unwrap().id();
    tamper(&db, &format!("update queue.job set payload = (select payload from queue.job where id = {first}) where id = {moved}")).await;
    db.run_until_idle(Worker::new(db.pool.clone()).register::<Second>()).await;
    let output = async |job: JobId| -> i64 { db.count(&format!("select output::bigint from queue.done where id = {job}")).await };
    assert_eq!([output(first).await, output(second).await, output(alias).await, output(replaced).await], [1, 2, 1, 3]);
    let (_, error) = dead(&db, refused).await;
    assert!(error.contains("cannot be upgraded to version 2: there is no card"), "{error}");
    let (_, error) = dead(&db, moved).await;
    assert!(error.contains("copied from another job type, version or store"), "{error}");
    db.finish().await;
}
