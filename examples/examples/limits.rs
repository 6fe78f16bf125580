//! Limits: two job types share the limit of one service, which allows two concurrent calls and ten calls per second. An operator lowers
//! the limit at run time. A third job type has a limit per key: it imports one file per account at a time.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use queue_core::{Context, Handler, Job, JobResult, Store, job, options::Limit};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

#[job(name = "example_charge", limit(name = "example_stripe", concurrency = 2, rate = "10/1s"))]
#[derive(Serialize, Deserialize)]
struct Charge {
    account: u32,
}

#[job(name = "example_refund", limit(name = "example_stripe"))]
#[derive(Serialize, Deserialize)]
struct Refund {
    account: u32,
}

#[job(name = "example_import", limit(name = "example_account", key = self.account, concurrency = 1))]
#[derive(Serialize, Deserialize)]
struct Import {
    account: usize,
}

static IMPORTS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

impl Handler for Import {
    async fn run(self, _: &Context) -> JobResult {
        let others = IMPORTS[self.account].fetch_add(1, Relaxed);
        assert!(others == 0 || self.account == 0, "one of each account at a time, but of the one that has paid for more");
        tokio::time::sleep(Duration::from_millis(20)).await;
        IMPORTS[self.account].fetch_sub(1, Relaxed);
        Ok(())
    }
}

static AT_ONCE: AtomicUsize = AtomicUsize::new(0);

async fn call(what: &str, account: u32) {
    let others = AT_ONCE.fetch_add(1, Relaxed);
    assert!(others < 2, "the service takes two calls at a time");
    println!("{what} {account}, beside {others} others");
    tokio::time::sleep(Duration::from_millis(50)).await;
    AT_ONCE.fetch_sub(1, Relaxed);
}

impl Handler for Charge {
    async fn run(self, _: &Context) -> JobResult {
        call("charge", self.account).await;
        Ok(())
    }
}

impl Handler for Refund {
    async fn run(self, _: &Context) -> JobResult {
        call("refund", self.account).await;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();
    let (mut charges, mut refunds) = (Vec::new(), Vec::new());
    for account in 0..6 {
        charges.push(Charge { account }.enqueue(pool).await?);
        refunds.push(Refund { account }.enqueue(pool).await?);
    }
    // On the command line: `queue-worker limits set example_account --key 0 --concurrency 3`.
    queue.set_limit_key("example_account", "0", Some(3)).await?;
    let mut imports = Vec::new();
    for n in 0..12 {
        imports.push(Import { account: n % 3 }.enqueue(pool).await?);
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(Worker::new(pool.clone()).run(async move { drop(stopped.await) }));
    charges[0].wait(&queue).await?;

    // On the command line: `queue-worker limits set example_stripe --concurrency 1 --reason 'they asked us to'`.
    queue.set_limit("example_stripe", Limit::new().concurrency(1), Some("they asked us to")).await?;
    for limit in queue.limits().await? {
        println!("{}: {:?} at once, {} used, {} jobs wait", limit.name, limit.figures.concurrency, limit.used, limit.waiting);
    }
    for (charge, refund) in charges.iter().zip(&refunds) {
        charge.wait(&queue).await?;
        refund.wait(&queue).await?;
    }

    for import in &imports {
        import.wait(&queue).await?;
    }
    // On the command line: `queue-worker limits keys example_account`.
    for key in queue.limit_keys("example_account").await? {
        println!("account {:?}: {:?} at once of its own, {} used, {} wait", key.key, key.concurrency, key.used, key.waiting);
    }

    // On the command line: `queue-worker limits unset example_stripe`.
    queue.unset_limit("example_stripe").await?;
    drop(stop);
    worker.await??;
    Ok(())
}
