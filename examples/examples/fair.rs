//! Fair queueing: tenants take turns, so a tenant with a large backlog does not delay the other tenants.

use std::sync::{Arc, Mutex};

use queue_core::{Context, Handler, Job, JobResult, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

/// Tenants in the order their jobs ran.
type Served = Arc<Mutex<Vec<String>>>;

#[job(name = "example_page", fair = self.tenant, state(Served))]
#[derive(Serialize, Deserialize)]
struct Page {
    tenant: String,
}

impl Handler for Page {
    async fn run(self, cx: &Context) -> JobResult {
        cx.state::<Served>().lock().map_err(|_| "a handler panicked")?.push(self.tenant);
        Ok(())
    }
}

fn pages(tenant: &str, count: usize) -> impl Iterator<Item = Page> + Send + use<> {
    let tenant = tenant.to_owned();
    (0..count).map(move |_| Page { tenant: tenant.clone() })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();

    // The large tenant enqueues first.
    Page::enqueue_all(pages("large", 300), pool).await?;
    let mut last = Vec::new();
    for tenant in ["ada", "bob", "cleo"] {
        Page::enqueue_all(pages(tenant, 2), pool).await?;
        last.push(Page { tenant: tenant.to_owned() }.enqueue(pool).await?);
    }
    // From now on cleo gets two turns for each turn of another tenant. On the command line: `queue-worker weight example_page cleo 2`.
    queue.set_weight("example_page", "cleo", Some(2)).await?;

    let served = Served::default();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(pool.clone()).register::<Page>().concurrency(1).state(Arc::clone(&served));
    let worker = tokio::spawn(worker.run(async move { drop(stopped.await) }));
    for job in last {
        job.wait(&queue).await?;
    }
    drop(stop);
    worker.await??;

    let served = served.lock().map_err(|_| anyhow::anyhow!("a handler panicked"))?.clone();
    let before = served.iter().rposition(|tenant| tenant != "large").unwrap_or(0);
    println!("the small tenants' nine jobs were over after {} of 309", before + 1);
    anyhow::ensure!(before < 100, "no tenant waits for the large one");
    queue.set_weight("example_page", "cleo", None).await?;
    Ok(())
}
