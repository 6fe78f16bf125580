//! Tests ordering, uniqueness and fair keys that are derived from a sealed payload. The derived keys cannot be guessed from the store,
//! and behave like keys derived from unsealed payloads.

use queue_core::{EnqueueOutcome, Error, Job as _, Keyring, job, schedule::Schedule, use_keyring};
use serde::{Deserialize, Serialize};
use tests::TestDb;

use super::{give, sealed, secret, tables_with};

#[job(send_only, name = "seal_unique", seal = "hashed", unique(fields(account)), key = self.account)]
#[derive(Serialize, Deserialize)]
struct Pay {
    account: String,
}

#[job(send_only, name = "seal_unhashed", seal = "unhashed", unique(fields(account)))]
#[derive(Serialize, Deserialize)]
struct Unhashed {
    account: String,
}

sealed!(Line, "seal_line", "hashed", fifo);

fn pay(account: &str) -> Pay {
    Pay { account: account.to_owned() }
}

#[tokio::test]
async fn keys_derived_from_payloads_cannot_be_guessed_and_survive_a_key_rotation() {
    let db = TestDb::new().await;
    give("hashed", "2025", 1);
    let first = pay("hunter2").enqueue(&db.pool).await.unwrap();
    let guesses = "select count(*) from queue.unique_key where hash = queue.unique_hash('default', 'seal_unique', $1)";
    let guessed: i64 = sqlx::query_scalar(guesses).bind(r#"fields/9:"hunter2""#).fetch_one(&db.pool).await.unwrap();
    assert_eq!(guessed, 0, "who knows the fields does not find the key");
    assert_eq!(db.count("select count(*) from queue.job where key = queue.key_id('default', 'hunter2')").await, 0);
    assert_eq!(db.count("select count(*) from queue.unique_key").await, 1);

    use_keyring("hashed", Keyring::new("2026", secret(2)).older("2025", secret(1)).hashing(secret(255))).unwrap();
    let again = pay("hunter2").enqueue(&db.pool).await.unwrap();
    assert_eq!((again.id(), again.outcome()), (first.id(), EnqueueOutcome::Kept));
    let other = pay("other").enqueue(&db.pool).await.unwrap();
    assert_eq!(other.outcome(), EnqueueOutcome::New);
    let behind = pay("hunter2").enqueue(&db.pool).unique("its own").await.unwrap();
    let ahead = "select count(*) from queue.blocked";
    assert_eq!(db.count(ahead).await, 1, "{} waits behind {}", behind.id(), first.id());
    // The option `fifo` uses the empty ordering key, which orders all jobs of `fifo` types in a queue. The empty key is the same for
    // sealed and unsealed types.
    Line::card().enqueue(&db.pool).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.job where key = queue.key_id('default', '')").await, 1);
    // A schedule stores the derived keys in its options.
    let schedule = Schedule::every(std::time::Duration::from_hours(1)).job(&pay("hunter2"));
    queue_core::Queue::new(&db.pool).schedule("pay").create(&schedule).await.unwrap();
    assert_eq!(tables_with(&db, "hunter2").await, [""; 0]);
    assert_eq!(db.count("select count(*) from queue.schedule where options ? 'unique_key' and options ? 'key'").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn without_a_hashing_key_no_sealed_job_with_a_key_is_enqueued() {
    let db = TestDb::new().await;
    use_keyring("unhashed", Keyring::new("k", secret(1))).unwrap();
    let refused = Unhashed { account: "hunter2".to_owned() }.enqueue(&db.pool).await.unwrap_err();
    assert!(matches!(refused, Error::Sealing { .. }), "{refused}");
    let message = refused.to_string();
    assert!(
        message.contains("its uniqueness key is computed from it")
            && message.contains("`Keyring::hashing`")
            && !message.contains("hunter2"),
        "{message}"
    );
    assert_eq!(db.count("select count(*) from queue.job").await, 0);
    db.finish().await;
}
