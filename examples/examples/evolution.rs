//! Payload that changes between releases. The new release runs the jobs of the old release. The old release cannot read the new payload,
//! so it leaves the jobs of the new release in the queue.

use queue_core::{Context, Handler, Job, JobResult, JobState, Store, job, operate};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

/// Job type of the previous release. A real program defines only its current type; this example needs both types.
mod before {
    use super::{Context, Deserialize, Handler, JobResult, Serialize, job};

    #[job(send_only, name = "example_invoice", output = String)]
    #[derive(Serialize, Deserialize)]
    pub(super) struct Invoice {
        pub(super) to: String,
        pub(super) euros: f64,
    }

    impl Handler for Invoice {
        async fn run(self, _: &Context) -> JobResult<String> {
            Ok(format!("{} owes {} euros", self.to, self.euros))
        }
    }
}

/// Payload of the previous release.
#[derive(Deserialize)]
struct InvoiceV1 {
    to: String,
    euros: f64,
}

/// Invoice with several recipients, which the old struct cannot represent. The payload therefore has a new version.
#[job(send_only, name = "example_invoice", version = 2, upgrade = from_v1, output = String)]
#[derive(Serialize, Deserialize)]
struct Invoice {
    to: Vec<String>,
    cents: i64,
}

fn from_v1(old: InvoiceV1) -> Result<Invoice, &'static str> {
    if !(0.0..1e12).contains(&old.euros) {
        return Err("`euros` is no sum");
    }
    Ok(Invoice { to: vec![old.to], cents: (old.euros * 100.0).round() as i64 })
}

impl Handler for Invoice {
    async fn run(self, cx: &Context) -> JobResult<String> {
        println!("version {}: {} cents", cx.version(), self.cents);
        Ok(format!("{} owe {} cents", self.to.join(" and "), self.cents))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();

    // Both releases enqueue jobs, as during a deployment.
    let old = before::Invoice { to: "Ada".into(), euros: 12.5 }.enqueue(pool).await?;
    let new = Invoice { to: vec!["Ada".into(), "Bea".into()], cents: 1999 }.enqueue(pool).await?;
    let wrong = before::Invoice { to: "Eve".into(), euros: -1.0 }.enqueue(pool).await?;

    // A worker of the old release does not claim the new job, so the job loses no attempts.
    let last = before::Invoice { to: "Cid".into(), euros: 3.0 }.enqueue(pool).queue("old").await?;
    examples::run_until_finished(Worker::new(pool.clone()).register::<before::Invoice>().queue("old", 1), pool, &[last.id()]).await?;
    let waits = examples::find_job(pool, new.id()).await?;
    assert_eq!((waits.state, waits.version, waits.attempts), (JobState::Ready, 2, 0));
    let unserved = queue.unserved().await?;
    assert!(unserved.iter().any(|waits| waits.job_type == "example_invoice" && waits.version == 2), "the operator gets the reason");

    // A worker of the new release runs the jobs of both releases.
    examples::run_until_finished(Worker::new(pool.clone()).register::<Invoice>(), pool, &[old.id(), new.id(), wrong.id()]).await?;
    let said = |job: &operate::JobRecord| job.output.as_ref().map(|output| output.get().to_owned());
    assert_eq!(said(&examples::find_job(pool, old.id()).await?).as_deref(), Some(r#""Ada owe 1250 cents""#));
    assert_eq!(said(&examples::find_job(pool, new.id()).await?).as_deref(), Some(r#""Ada and Bea owe 1999 cents""#));

    // A job whose payload cannot be upgraded becomes a dead letter immediately. Its error names the reason and never contains the payload.
    let dead = examples::find_job(pool, wrong.id()).await?;
    assert_eq!((dead.state, dead.attempts), (JobState::Dead, 1));
    println!("dead: {}", dead.error.unwrap_or_default());
    Ok(())
}
