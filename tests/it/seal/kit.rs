//! Tests sealed types in the test kit. An inline run needs no encryption keys. Assertions and drains need the keys with which the payloads
//! are sealed. A lock file contains payloads in plaintext.

use queue_core::{Job as _, Keyring, assert_enqueued, assert_not_enqueued, testing, use_keyring};
use tests::TestDb;

use super::{CARD, give, sealed, secret};

sealed!(NoKeys, "seal_kit_no_keys", "never_given_to_the_kit");
sealed!(Charge, "seal_kit", "kit");
sealed!(Lost, "seal_kit_lost", "kit_lost");

#[tokio::test]
async fn a_handler_is_run_inline_without_keys() {
    let ran = testing::run(NoKeys::card()).await;
    assert_eq!(ran.output(), CARD.len());
}

#[tokio::test]
async fn sealed_jobs_are_asserted_and_drained_in_clear_text() {
    give("kit", "k", 1);
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    Charge::card().enqueue(&mut tx).await.unwrap();
    sqlx::query(r#"select queue.enqueue('seal_kit', '{"card": "from sql"}')"#).execute(&mut *tx).await.unwrap();
    assert_enqueued!(&mut tx, Charge { card } if card == CARD);
    assert_enqueued!(&mut tx, Charge { card } if card == "from sql");
    assert_not_enqueued!(&mut tx, Charge { card } if card.is_empty());
    assert_eq!(testing::enqueued::<Charge>(&mut tx).await.unwrap()[0], Charge::card());
    let drained = testing::drain(&mut tx).register::<Charge>().await.unwrap();
    assert_eq!(drained.outputs::<Charge>(), [CARD.len(), 8]);
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_cannot_be_opened_in_a_test_names_the_reason() {
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    give("kit_lost", "k", 1);
    let job = Lost::card().enqueue(&mut tx).await.unwrap().id();
    use_keyring("kit_lost", Keyring::new("other", secret(2))).unwrap();
    let error = testing::enqueued::<Lost>(&mut tx).await.unwrap_err().to_string();
    assert!(error.contains(&job.to_string()) && error.contains("`Keyring::older`") && !error.contains("hunter2"), "{error}");
    let drained = testing::drain(&mut tx).register::<Lost>().await.unwrap();
    assert_eq!(drained.retried(), 1);
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[test]
fn a_lock_file_has_payloads_in_clear_with_or_without_keys() {
    let payloads = || testing::Payloads::new().job_type::<NoKeys>();
    let locked = payloads().compare(None, false).unwrap().unwrap();
    assert!(locked.contains("seal_kit_no_keys") && locked.contains("\"card\"") && !locked.contains("queue-sealed"), "{locked}");
    assert_eq!(payloads().compare(Some(&locked), false), Ok(None));
}
