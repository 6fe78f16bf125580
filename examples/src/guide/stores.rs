//! Code blocks of `docs/STORES.md`.

use std::time::Duration;

use queue_core::{
    Job, Store, job,
    stores::{Member, Roster, Stores},
};
use queue_worker::{StoresWorker, shutdown_signal};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

#[job(name = "guide_invoice", send_only)]
#[derive(Serialize, Deserialize)]
struct Invoice {
    month: u32,
}

async fn one_worker(pool: PgPool) -> anyhow::Result<()> {
    let roster = Roster::default();
    for tenant in ["acme", "globex"] {
        roster.put(Member::new(tenant, &pool, Store::new(tenant)?)?);
    }
    StoresWorker::new(&roster, |_, worker| worker.queue("mail", 20)).slots(50).run(shutdown_signal()).await?;
    Ok(())
}

#[rustfmt::skip]
async fn places(home: PgPool, pool: PgPool) -> anyhow::Result<()> {
    let stores = Stores::new(&home, Store::new("homes")?).database("main", &pool)?;
    stores.migrate().await?;                                  // creates the tables of this page in the home database and in each database
    stores.add("jobs_a", "main", Store::new("jobs_a")?).await?;

    let mut tx = stores.of("acme").await?.begin().await?;
    Invoice { month: 7 }.enqueue(&mut tx).await?;
    tx.commit().await?;

    tokio::spawn(async move { stores.tend(Duration::from_secs(5)).await });   // in each worker: handles new stores and moves
    Ok(())
}

#[rustfmt::skip]
async fn moves(stores: Stores) -> anyhow::Result<()> {
    stores.move_tenant("acme", "jobs_b").await?;              // starts the move; `drain` moves all tenants of a store
    stores.go_on("acme").await?;                              // returns Fencing, Draining(42) or Over; `tend` calls it too
    stores.moves().await?;                                    // tenants that are moving, with source and start time
    Ok(())
}
