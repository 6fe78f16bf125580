//! Multiple stores: tenants are placed in two stores, one worker serves both stores, and a tenant moves between the stores.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use queue_core::{
    Job as _, JobState, Store,
    operate::Filter,
    stores::{MoveState, Rule, StoreJob, Stores},
};
use queue_worker::{StoresWorker, Worker};
use tokio::sync::oneshot;

use super::{
    jobs::{Echo, echo},
    play::{Need, OperationGroup, not_on_citus, operations},
    world::World,
};

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "stores",
    needs: Need::Store,
    operations: operations![
        "create stores, place tenants" => place,
        "one worker for both" => work,
        "move a tenant" => moves,
        "query all stores" => query_all,
        "close and remove a store" => end,
    ],
};

/// Opens the stores, with their registry in the user's schema.
async fn stores(world: &World) -> Result<Stores> {
    // The pool of the registry must be able to create the registry's tables.
    let home = world.maker();
    let stores = Stores::new(home, Store::new(world.given.app())?).rule(Rule::Fewest).database("main", home)?;
    stores.migrate().await?;
    ensure!(stores.refresh().await?.is_empty(), "the database of each store must be known");
    Ok(stores)
}

async fn place(world: &World) -> Result<()> {
    let stores = stores(world).await?;
    world.migrate_store(world.second).await?;
    stores.add("one", "main", world.store).await?;
    stores.add("two", "main", world.second).await?;
    ensure!(stores.place("acme", "one").await? && !stores.place("acme", "two").await?, "a tenant must keep its first store");
    ensure!(stores.look_up("acme").await?.is_some_and(|place| place.store == "one" && place.leaves.is_none()));
    ensure!(stores.look_up("globex").await?.is_none(), "a lookup must not place the tenant");
    let (acme, globex) = (stores.of("acme").await?, stores.of("globex").await?);
    ensure!((acme.member().name(), globex.member().name()) == ("one", "two"), "{acme:?}, {globex:?}");
    let tenants: Vec<(String, i64)> = stores.records().await?.into_iter().map(|record| (record.name, record.tenants)).collect();
    ensure!(tenants == [("one".to_owned(), 1), ("two".to_owned(), 1)], "{tenants:?}");
    let mut tx = globex.begin().await?;
    ensure!(tx.key() == "globex" && tx.store() == world.second);
    let job = echo("taken back").enqueue(&mut tx).await?.id();
    tx.rollback().await?;
    ensure!(stores.roster().find(&StoreJob::new("two", job)?).await.is_err(), "the job must be rolled back");
    Ok(())
}

/// Runs one worker on all stores until `play` ends.
async fn with_worker(world: &World, stores: &Stores, play: impl Future<Output = Result<()>>) -> Result<()> {
    let (stop, stopped) = oneshot::channel::<()>();
    let given = world.given.clone();
    let worker = StoresWorker::new(stores.roster(), move |_, worker| worker.register::<Echo>().state(given.clone()));
    let worker = worker.slots(4).linger(Duration::from_secs(1)).upkeep(Duration::from_hours(1));
    let worker = tokio::spawn(worker.run(async move { drop(stopped.await) }));
    let played = play.await;
    drop(stop);
    worker.await??;
    played
}

async fn is_completed(world: &World, stores: &Stores, job: &StoreJob) -> Result<()> {
    ensure!(job.to_string().parse::<StoreJob>()? == *job);
    world.until("the tenant's job is completed", async || Ok(stores.roster().find(job).await?.state == JobState::Completed)).await
}

async fn work(world: &World) -> Result<()> {
    not_on_citus(world, "a worker for multiple stores skips distributed ones; each of those needs a `Worker` of its own")?;
    let stores = stores(world).await?;
    with_worker(world, &stores, async {
        for key in ["acme", "globex"] {
            let of = stores.of(key).await?;
            let mut tx = of.begin().await?;
            let job = echo("by the worker over both").enqueue(&mut tx).await?.id();
            tx.commit().await?;
            is_completed(world, &stores, &StoreJob::new(of.member().name(), job)?).await?;
        }
        Ok(())
    })
    .await
}

async fn moves(world: &World) -> Result<()> {
    let stores = stores(world).await?;
    if world.setup.cluster.is_none() {
        return with_worker(world, &stores, moves_both_ways(world, &stores)).await;
    }
    // Starts a worker only for the second store, because the first store already has a running worker.
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = Worker::new(world.pool().clone()).direct(world.direct()).store(world.second).state(world.given.clone()).register::<Echo>();
    let worker = tokio::spawn(worker.run(async move { drop(stopped.await) }));
    let moved = moves_both_ways(world, &stores).await;
    drop(stop);
    worker.await??;
    moved
}

async fn moves_both_ways(world: &World, stores: &Stores) -> Result<()> {
    let acme = stores.of("acme").await?;
    let mut jobs = Vec::new();
    for to in ["two", "one"] {
        let mut tx = acme.begin().await?;
        let job = echo(format!("before it moves to {to}")).enqueue(&mut tx).await?.id();
        let from = stores.of("acme").await?.member().name().to_owned();
        tx.commit().await?;
        jobs.push(StoreJob::new(&from, job)?);
        stores.move_tenant("acme", to).await?;
        world.until("the move is finished", async || Ok(stores.go_on("acme").await? == MoveState::Over)).await?;
        ensure!(stores.of("acme").await?.member().name() == to);
        ensure!(stores.moves().await?.is_empty());
    }
    let mut tx = world.maker().begin().await?;
    let one = stores.of("acme").await?;
    one.enter(&mut tx).await?;
    let entered = echo("in a transaction of one's own").enqueue(&mut tx).store(one.member().store()).meta("of_tenant", one.key()).await?;
    tx.commit().await?;
    jobs.push(StoreJob::new("one", entered.id())?);
    for job in &jobs {
        is_completed(world, stores, job).await?;
    }
    Ok(())
}

async fn query_all(world: &World) -> Result<()> {
    let stores = stores(world).await?;
    let globex = stores.of("globex").await?;
    let mut tx = globex.begin().await?;
    let job = echo("no worker").enqueue(&mut tx).await?.id();
    tx.commit().await?;
    let (job, roster) = (StoreJob::new("two", job)?, stores.roster());
    let why = roster.why(&job).await?;
    ensure!(why.job == job.id() && why.state == Some(JobState::Ready), "{why:?}");
    let (one, two) = (roster.get("one").context("the store is not in the roster")?, roster.member_of(&job)?);
    ensure!(two.is_same(&roster.get("two").context("the store is not in the roster")?) && two.is_beside(&one) && !two.is_same(&one));
    roster.put(two);
    let filter = Filter { queue: Some("default".to_owned()), ..Filter::default() };
    for of in roster.list(&filter).await {
        of.answer?;
    }
    let counts = roster.counts().await;
    let ready =
        counts.into_iter().find(|of| of.member.name() == "two").context("no counts of the second store")?.answer?.of(JobState::Ready);
    ensure!(ready == 1, "{ready}");
    let names = roster.each(|member| async move { Ok(member.name().to_owned()) }).await;
    ensure!(names.len() == 2);
    // `tend` never returns, so the call must time out.
    let tending = stores.tend(Duration::from_millis(50));
    ensure!(tokio::time::timeout(Duration::from_millis(300), tending).await.is_err());
    Ok(())
}

async fn end(world: &World) -> Result<()> {
    let stores = stores(world).await?;
    stores.close("two").await?;
    ensure!(stores.of("initech").await?.member().name() == "one", "a closed store must take no new tenant");
    ensure!(stores.remove("two").await.is_err(), "a store with a tenant was removed");
    ensure!(stores.drain("two", None).await? == 1);
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("delete from {}.ready", world.second.schema()))).execute(world.maker()).await?;
    world.until("the move is finished", async || Ok(stores.go_on("globex").await? == MoveState::Over)).await?;
    stores.remove("two").await?;
    ensure!(stores.roster().get("two").is_none());
    Ok(())
}
