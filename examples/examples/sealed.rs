//! Payloads that are stored encrypted, and a change of keys: what was sealed with the old key is read, and what is new is sealed with the new one.

use queue_core::{Context, Error, Handler, Job, JobId, JobRef, JobResult, Keyring, Secret, Store, job, use_keyring};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

#[job(name = "example_charge", seal = "customers", unique(fields(card)), output = String)]
#[derive(Serialize, Deserialize)]
struct Charge {
    card: String,
    cents: i64,
}

impl Handler for Charge {
    async fn run(self, _: &Context) -> JobResult<String> {
        // The output is stored as it is: so none of the payload is in it.
        Ok(format!("charged {} cents", self.cents))
    }
}

/// From a key store, a file or a variable; made by `openssl rand -base64 32`.
const KEY_OF_MAY: &str = "S2V5IG9mIE1heSwgZm9yIGFuIGV4YW1wbGUgb25seSE=";
const KEY_OF_JUNE: &str = "S2V5IG9mIEp1bmUsIGZvciBhbiBleGFtcGxlIG9ubHk=";
/// By which keys that payloads make are hashed; it stays when the others change.
const HASHING: &str = "SGFzaGluZyBrZXksIGZvciBhbiBleGFtcGxlIG9ubHk=";

/// What an operator, a dump or a dashboard sees.
async fn seen(pool: &PgPool, job: JobId) -> anyhow::Result<String> {
    Ok(JobRef::from_id(job).find(pool).await?.payload.map(|payload| payload.to_string()).unwrap_or_default())
}

fn charge(card: &str, cents: i64) -> Charge {
    Charge { card: card.to_owned(), cents }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();

    // Without keys nothing is enqueued, in clear least of all.
    let refused = charge("4111 1111", 700).enqueue(pool).await;
    assert!(matches!(refused, Err(Error::Sealing { .. })));

    use_keyring("customers", Keyring::new("may", Secret::parse(KEY_OF_MAY)?).hashing(Secret::parse(HASHING)?))?;
    let in_may = charge("4111 1111", 700).enqueue(pool).await?;
    println!("stored as {}", seen(pool, in_may.id()).await?);
    assert!(seen(pool, in_may.id()).await?.starts_with("\"queue-sealed/1/customers/may/"));

    // First every program is given the new key as an older one, so that it can read what others seal with it; then it becomes the current one.
    let (may, june, hashing) = (Secret::parse(KEY_OF_MAY)?, Secret::parse(KEY_OF_JUNE)?, Secret::parse(HASHING)?);
    use_keyring("customers", Keyring::new("may", may.clone()).older("june", june.clone()).hashing(hashing.clone()))?;
    use_keyring("customers", Keyring::new("june", june).older("may", may).hashing(hashing))?;
    let in_june = charge("5500 0000", 900).enqueue(pool).await?;
    assert!(seen(pool, in_june.id()).await?.starts_with("\"queue-sealed/1/customers/june/"));
    // Unique jobs are, over the change of keys.
    assert_eq!(charge("4111 1111", 700).enqueue(pool).await?.id(), in_may.id());

    examples::run_until_over(Worker::new(pool.clone()), pool, &[in_may.id(), in_june.id()]).await?;
    assert_eq!(in_may.wait(pool).await?, "charged 700 cents");
    assert_eq!(in_june.wait(pool).await?, "charged 900 cents");
    assert!(seen(pool, in_may.id()).await?.starts_with("\"queue-sealed/"), "it is sealed as long as it is kept");
    Ok(())
}
