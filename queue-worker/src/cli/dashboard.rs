//! `dashboard`, and `run --dashboard`: the dashboard's settings, and its server.

use std::net::{Ipv4Addr, SocketAddr};

use queue_core::Store;
use sqlx::{PgPool, postgres::PgPoolOptions};

use super::{
    open::{open_store, open_to_look},
    problem::Problem,
    settings::Settings,
};
use crate::{
    dashboard,
    error::Error,
    live::{Database, Engine, shutdown_signal},
};

/// Where it listens if nothing is said.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7070);

/// It takes no more connections to the database.
const CONNECTIONS: u32 = 3;

/// Serves it until a signal.
pub(super) async fn serve(settings: &Settings, address: Option<SocketAddr>) -> Result<(), Problem> {
    let address = address.or(settings.dashboard.address()).unwrap_or(ADDRESS);
    // Before the database is looked for: what is not safe is said at once.
    let mut listening = dashboard::listen(address, settings.dashboard.options()).await?;
    let (database, store) = open_store(settings).await?;
    let reads = match &settings.read_url {
        Some(_) => Some(open_to_look(settings).await?.0),
        None => None,
    };
    if let Some(reads) = &reads {
        listening = listening.read_from(pool_of(reads));
    }
    let stopped = shutdown_signal();
    super::print::lines(&format!("the dashboard is at http://{}", listening.address()))?;
    listening.serve(pool_of(&database), store, stopped).await;
    if let Some(reads) = reads {
        reads.close().await;
    }
    database.close().await;
    Ok(())
}

/// Serves it beside a worker, if that is wanted, until what this returns is dropped: on a thread of its own, so that neither is in the other's way. Jobs
/// do not wait for its address: while another process has that, it is tried again.
pub(super) async fn beside(settings: &Settings, database: &Database, store: Store) -> Result<Option<Engine>, Problem> {
    let Some(address) = settings.dashboard.address() else { return Ok(None) };
    let engine = Engine::start("queue-dashboard").map_err(|error| Error::Thread(error.to_string()))?;
    let (options, pool) = (settings.dashboard.options(), pool_of(database));
    if settings.read_url.is_some() {
        engine.handle().spawn(read_from_standby(options.clone(), settings.clone()));
    }
    let pending = engine.handle().spawn(async move { dashboard::listen_beside(address, options).await });
    let pending = pending.await.map_err(Problem::failed)??;
    engine.handle().spawn(async move { pending.serve(pool, store).await });
    Ok(Some(engine))
}

/// Has the dashboard read where that is wanted, as soon as it can; until then it reads where jobs are.
async fn read_from_standby(options: dashboard::Options, settings: Settings) {
    let mut has_said = false;
    loop {
        match open_to_look(&settings).await {
            Ok((reads, _)) => {
                let _ = options.read_from(pool_of(&reads));
                return;
            }
            Err(problem) if !has_said => {
                has_said = true;
                tracing::warn!("the dashboard reads from the database itself, until what QUEUE_READ_URL names can be reached: {problem}");
            }
            Err(_) => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// How often a standby that cannot be reached is tried again.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(10);

/// A small pool to the same database.
fn pool_of(database: &Database) -> PgPool {
    database.another_pool(PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(std::time::Duration::from_secs(5)))
}
