//! Creates a store, inspects it, and grants roles on it. Creates a second store in the same database.

use std::time::Duration;

use anyhow::{Result, ensure};
use queue_core::{Job as _, JobHandle, JobState, Queue, Roles, Store, check_name, migrate};
use queue_worker::{Database, OnStandby, Worker};
use sqlx::AssertSqlSafe;
use tokio::sync::oneshot;

use super::{
    jobs::{Echo, echo},
    play::{Need, OperationGroup, operations, skip},
    world::{IDLE, RunningWorker, World},
};

pub(super) const MADE: OperationGroup = OperationGroup {
    name: "store",
    needs: Need::Nothing,
    operations: operations![
        "connect" => connect,
        "migrate" => make,
        "migrate again" => make_again,
        "status, verify and print" => inspect,
        "name" => names,
        "roles" => roles,
        "a producer for some queues" => producer,
        "a second store with its own worker" => second,
        "drop the second store" => drop_second,
    ],
};

async fn connect(world: &World) -> Result<()> {
    let mut options = Database::options().url(&world.setup.url).pool_size(1).on_standby(OnStandby::Exit);
    if let Some(direct) = &world.setup.direct_url {
        options = options.direct_url(direct);
    }
    let one = options.connect().await?;
    ensure!(!one.is_embedded(), "a URL was named");
    for pool in [one.pool(), one.direct()] {
        sqlx::query("select 1").execute(pool).await?;
    }
    one.close().await;
    Database::connect(&world.setup.url).await?.close().await;
    Ok(())
}

async fn make(world: &World) -> Result<()> {
    let applied = match &world.setup.cluster {
        None => world.setup.database.migrate(world.store).await?,
        Some(_) => world.migrate_store(world.store).await?,
    };
    ensure!(applied.contains(&migrate::LATEST), "{applied:?} were applied");
    world.is_migrated();
    Ok(())
}

async fn make_again(world: &World) -> Result<()> {
    let applied = world.setup.database.migrate(world.store).await?;
    ensure!(applied.is_empty(), "{applied:?} were applied again");
    let applied = migrate(&mut *world.direct().acquire().await?, world.store).await?;
    ensure!(applied.is_empty(), "{applied:?} were applied again");
    Ok(())
}

async fn inspect(world: &World) -> Result<()> {
    let mut on = world.direct().acquire().await?;
    let found = migrate::status(&mut on, world.store).await?;
    ensure!(found.iter().all(|one| one.applied_at.is_some()), "{found:?}");
    migrate::verify(&mut on, world.store).await?;
    ensure!(migrate::print(world.store).contains(world.store.schema()), "the SQL names the schema");
    Ok(())
}

#[expect(clippy::unused_async, reason = "all operations are async")]
async fn names(world: &World) -> Result<()> {
    ensure!(world.store.sql("select queue.x").contains(world.store.schema()), "the schema is not in the statement");
    ensure!(Store::new("No Schema").is_err() && check_name("queue", "mail").is_ok());
    Ok(())
}

/// Returns whether the login may create roles.
async fn may_make_roles(world: &World) -> Result<bool> {
    let may = "select rolcreaterole or rolsuper from pg_roles where rolname = current_user";
    Ok(sqlx::query_scalar(may).fetch_one(world.pool()).await?)
}

async fn roles(world: &World) -> Result<()> {
    if !may_make_roles(world).await? {
        return skip("the login may not create roles");
    }
    let roles = Roles::of(world.store).prefix(&format!("{}_group", world.store.schema()))?;
    ensure!(roles.print().contains("grant"), "the SQL grants nothing");
    world.made_roles(roles.names());
    roles.apply(&mut *world.maker().acquire().await?).await?;
    let known: i64 =
        sqlx::query_scalar("select count(*) from pg_roles where rolname = any($1)").bind(roles.names()).fetch_one(world.pool()).await?;
    ensure!(known == 5, "{known} roles of five");
    Ok(())
}

async fn producer(world: &World) -> Result<()> {
    if !may_make_roles(world).await? {
        return skip("the login may not create roles");
    }
    let role = format!("{}_mailer", world.store.schema());
    let roles = Roles::of_producer(world.store, &role, &[IDLE])?;
    world.made_roles(roles.names());
    roles.apply(&mut *world.maker().acquire().await?).await?;
    if !sqlx::query_scalar::<_, bool>("select rolsuper from pg_roles where rolname = current_user").fetch_one(world.pool()).await? {
        sqlx::raw_sql(AssertSqlSafe(format!("grant {role} to current_user"))).execute(world.maker()).await?;
    }
    if world.setup.cluster.is_some() {
        // The nodes of a cluster connect to each other as the current role, so the role must be able to log in.
        sqlx::raw_sql(AssertSqlSafe(format!("alter role {role} login"))).execute(world.maker()).await?;
    }
    let mut tx = world.pool().begin().await?;
    sqlx::raw_sql(AssertSqlSafe(format!("set local role {role}"))).execute(&mut *tx).await?;
    let job = echo("by a producer").enqueue(&mut tx).store(world.store).queue(IDLE).await?;
    tx.commit().await?;
    ensure!(job.state(world.pool()).await? == JobState::Ready);
    let mut tx = world.pool().begin().await?;
    sqlx::raw_sql(AssertSqlSafe(format!("set local role {role}"))).execute(&mut *tx).await?;
    ensure!(echo("elsewhere").enqueue(&mut tx).store(world.store).queue("other").await.is_err(), "the producer may enqueue into any queue");
    tx.rollback().await?;
    Ok(())
}

async fn second(world: &World) -> Result<()> {
    let store = world.second;
    world.migrate_store(store).await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = Worker::new(world.pool().clone()).direct(world.direct()).store(store).state(world.given.clone()).register::<Echo>();
    let task = tokio::spawn(worker.run(async move { drop(stopped.await) }));
    let running = RunningWorker { stop, task };
    let job: JobHandle<Echo> = echo("in the second store").enqueue(world.pool()).store(store).await?;
    let waited = job.wait(&Queue::new(world.direct()).store(store)).timeout(Duration::from_secs(20)).await;
    running.end().await?;
    ensure!(waited? == "in the second store" && job.store() == store);
    let found = job.job_ref().in_store(world.store).state(world.pool()).await;
    ensure!(found.is_err(), "the first store returns a job of the second");
    Ok(())
}

async fn drop_second(world: &World) -> Result<()> {
    let schema = world.second.schema();
    for schema in [format!("if exists {schema}_here"), schema.to_owned()] {
        sqlx::raw_sql(AssertSqlSafe(format!("drop schema {schema} cascade"))).execute(world.maker()).await?;
    }
    ensure!(migrate::verify(&mut *world.direct().acquire().await?, world.second).await.is_err(), "the store still exists");
    migrate::verify(&mut *world.direct().acquire().await?, world.store).await?;
    Ok(())
}
