//! Code block of `docs/SEALED.md`.

use queue_core::{Context, Handler, Job, JobResult, Keyring, Secret, job, use_keyring};
use serde::{Deserialize, Serialize};

#[job(seal = "customers")]
#[derive(Serialize, Deserialize)]
struct Charge {
    card: String,
}

impl Handler for Charge {
    async fn run(self, _: &Context) -> JobResult {
        println!("a card of {} digits", self.card.len());
        Ok(())
    }
}

async fn start(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    // Register the keys at the start of each program that enqueues or runs jobs with sealed payloads.
    use_keyring("customers", Keyring::new("2026-05", Secret::parse(&std::env::var("CUSTOMERS_KEY")?)?))?;
    Charge { card: "4111 1111".into() }.enqueue(&pool).await?;
    Ok(())
}
