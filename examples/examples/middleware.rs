//! Middleware: code that is shared by all handlers. The first middleware passes the tenant from the enqueuing request to the handler. The
//! second middleware logs the duration of each attempt.

use std::time::Instant;

use queue_core::{
    Context, Failure, Handler, Job, JobResult, Store, job,
    middleware::{AttemptOutput, Middleware, Next, async_trait, on_enqueue},
};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

tokio::task_local! {
    /// Tenant of the current request or job.
    static TENANT: String;
}

#[job(name = "example_invoice", output = String)]
#[derive(Serialize, Deserialize)]
struct Invoice {
    number: u32,
}

impl Handler for Invoice {
    async fn run(self, _: &Context) -> JobResult<String> {
        Ok(format!("invoice {} of {}", self.number, TENANT.get()))
    }
}

/// Middleware that runs each attempt in the context of the job's tenant.
struct Tenancy;

#[async_trait]
impl Middleware for Tenancy {
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        let Some(tenant) = cx.meta().get("tenant").and_then(|tenant| tenant.as_str()) else {
            return Err(Failure::terminal("enqueued for no tenant"));
        };
        TENANT.scope(tenant.to_owned(), next.run()).await
    }
}

/// Middleware that logs the duration and the outcome of each attempt.
struct Stopwatch;

#[async_trait]
impl Middleware for Stopwatch {
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        let began = Instant::now();
        let result = next.run().await;
        let came = result.as_ref().map_or_else(ToString::to_string, |_| "completed".to_owned());
        println!("{} {} took {:?}: {came}", cx.job_type(), cx.id(), began.elapsed());
        result
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();

    on_enqueue(|job| {
        if let Ok(tenant) = TENANT.try_with(String::clone) {
            job.meta("tenant", tenant);
        }
    });
    let served = TENANT.scope("acme".to_owned(), Invoice { number: 7 }.enqueue(pool).into_future()).await?;
    let nobodys = Invoice { number: 8 }.enqueue(pool).await?;

    let worker = Worker::new(pool.clone()).middleware(Stopwatch).middleware(Tenancy);
    let jobs = [served.id(), nobodys.id()];
    examples::run_until_finished(worker, pool, &jobs).await?;
    assert_eq!(served.wait(&queue).await?, "invoice 7 of acme");
    assert!(nobodys.wait(&queue).await.is_err(), "it is a dead letter");
    Ok(())
}
