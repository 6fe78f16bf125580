//! A payload that changes: jobs of the release before are read by this one, and jobs of the next one are left alone by that before.

use queue_core::{Context, Handler, Job, JobResult, JobState, Store, job, operate};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

/// The release before. A program has one of these types; here are two, to show both sides.
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

/// What the release before has enqueued.
#[derive(Deserialize)]
struct InvoiceV1 {
    to: String,
    euros: f64,
}

/// From now on in cents, which the old struct cannot say: so another version.
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

    // Both releases are at work, as during a deploy.
    let old = before::Invoice { to: "Ada".into(), euros: 12.5 }.enqueue(pool).await?;
    let new = Invoice { to: vec!["Ada".into(), "Bea".into()], cents: 1999 }.enqueue(pool).await?;
    let wrong = before::Invoice { to: "Eve".into(), euros: -1.0 }.enqueue(pool).await?;

    // A worker of the old release leaves the new job alone: it is not tried, and not charged.
    let last = before::Invoice { to: "Cid".into(), euros: 3.0 }.enqueue(pool).queue("old").await?;
    examples::run_until_over(Worker::new(pool.clone()).register::<before::Invoice>().queue("old", 1), pool, &[last.id()]).await?;
    let waits = examples::look(pool, new.id()).await?;
    assert_eq!((waits.state, waits.version, waits.attempts), (JobState::Ready, 2, 0));
    let unserved = operate::unserved(pool, Store::default()).await?;
    assert!(unserved.iter().any(|waits| waits.job_type == "example_invoice" && waits.version == 2), "an operator is told");

    // One of the new release runs both.
    examples::run_until_over(Worker::new(pool.clone()).register::<Invoice>(), pool, &[old.id(), new.id(), wrong.id()]).await?;
    let said = |job: &operate::JobRecord| job.output.as_ref().map(|output| output.get().to_owned());
    assert_eq!(said(&examples::look(pool, old.id()).await?).as_deref(), Some(r#""Ada owe 1250 cents""#));
    assert_eq!(said(&examples::look(pool, new.id()).await?).as_deref(), Some(r#""Ada and Bea owe 1999 cents""#));

    // What cannot be upgraded is a dead letter at once, which says why, and never what the payload holds.
    let dead = examples::look(pool, wrong.id()).await?;
    assert_eq!((dead.state, dead.attempts), (JobState::Dead, 1));
    println!("dead: {}", dead.error.unwrap_or_default());
    Ok(())
}
