//! Sign-up with a trial of fourteen days. The job sends a welcome mail, waits without holding resources, and sends a reminder. The last
//! mail depends on whether the user has become a customer.

use std::time::Duration;

use queue_core::{Handler, Job as _, JobResult, Store, durable::Durable, job, sqlx, testing};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// Signal that the user has become a customer.
#[derive(Serialize, Deserialize)]
struct Paid {
    plan: String,
}

#[job(name = "example_sign_up", durable, output = String)]
#[derive(Serialize, Deserialize)]
struct SignUp {
    user: i64,
    /// Duration of one day of the trial, which tests and examples shorten.
    day: Duration,
}

impl Handler for SignUp {
    async fn run(self, cx: &Durable) -> JobResult<String> {
        cx.step("welcome", mail(self.user, "welcome", cx.key("welcome"))).await?;
        cx.sleep("most of the trial", 12 * self.day).await; // uses no slot and no connection, only a row
        cx.step("remind", mail(self.user, "two days are left", cx.key("remind"))).await?;
        let paid: Option<Paid> = cx.receive("paid").timeout(2 * self.day).await;
        let plan = match &paid {
            Some(Paid { plan }) => plan.as_str(),
            None => "none",
        };
        // The insert is committed together with the journal entry, so it takes effect exactly once.
        let set_plan = async |tx: &mut sqlx::PgConnection| {
            let insert = sqlx::query("insert into example_plans (id, plan) values ($1, $2)").bind(self.user).bind(plan);
            insert.execute(tx).await.map(|done| done.rows_affected())
        };
        cx.step_tx("plan", set_plan).await?;
        let farewell = if paid.is_some() { "thank you" } else { "we are sorry to see you go" };
        cx.step("farewell", mail(self.user, farewell, cx.key("farewell"))).await?;
        Ok(plan.to_owned())
    }
}

/// Sends a mail through an external service, which sends each mail once per key.
async fn mail(user: i64, text: &str, key: String) -> Result<(), std::io::Error> {
    tokio::task::yield_now().await;
    println!("to user {user}: {text} ({})", key.rsplit('-').next().unwrap_or_default());
    Ok(())
}

/// Tests the job without a database. Each run stops at the next sleep or wait, and returns without waiting for its end.
async fn test_it() {
    let sign_up = || testing::run(SignUp { user: 1, day: Duration::from_hours(24) });
    let asleep = sign_up().await;
    assert_eq!(asleep.journaled(), ["welcome", "most of the trial"]);
    assert_eq!(asleep.snoozed_for().map(|wait| wait.as_secs().div_ceil(3600)), Some(12 * 24));
    let waiting = sign_up().journaled("welcome", &()).slept("most of the trial").await;
    assert_eq!(waiting.waits_for(), ["paid"]);
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    test_it().await;
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();
    let table = "create table if not exists example_plans (id bigint, plan text); truncate example_plans";
    sqlx::raw_sql(table).execute(pool).await?;

    let day = Duration::from_millis(120);
    let (stays, goes) = (SignUp { user: 7, day }.enqueue(pool).await?, SignUp { user: 8, day }.enqueue(pool).await?);
    // This user pays on the first day, so the signal exists before the job waits for it.
    let _ = stays.signal(pool, "paid", &Paid { plan: "gold".to_owned() }).await?;
    let stop = CancellationToken::new();
    let worker = tokio::spawn(Worker::new(pool.clone()).register::<SignUp>().run(stop.clone().cancelled_owned()));
    assert_eq!((stays.wait(&queue).await?.as_str(), goes.wait(&queue).await?.as_str()), ("gold", "none"));
    stop.cancel();
    worker.await??;

    let plans: Vec<(i64, String)> = sqlx::query_as("select id, plan from example_plans order by id").fetch_all(pool).await?;
    assert_eq!(plans, [(7, "gold".to_owned()), (8, "none".to_owned())]);
    Ok(())
}
