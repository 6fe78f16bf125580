//! `dashboard` command and `run --dashboard`: run the dashboard server with its own connections.

use std::net::{Ipv4Addr, SocketAddr};

use queue_core::Store;
use sqlx::{PgPool, postgres::PgPoolOptions};

use super::{
    open::{open_for_reading, open_store},
    problem::Problem,
    settings::Settings,
};
use crate::{
    dashboard,
    error::Error,
    live::{Database, Engine, shutdown_signal},
};

/// Default address of the dashboard.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7070);

/// Maximum number of connections in each connection pool of the dashboard.
const CONNECTIONS: u32 = 3;

/// Serves the dashboard until the process receives a signal.
pub(super) async fn serve(settings: &Settings, address: Option<SocketAddr>) -> Result<(), Problem> {
    let address = address.or(settings.dashboard.address()).unwrap_or(ADDRESS);
    // The options are checked before the database is opened, so that an unsafe configuration is reported immediately.
    let mut listening = dashboard::listen(address, settings.dashboard.options()).await?;
    let (database, store) = open_store(settings).await?;
    let reads = match &settings.read_url {
        Some(_) => Some(open_for_reading(settings).await?.0),
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

/// Starts the dashboard beside a worker if an address is set. The returned engine runs the dashboard on separate threads, so that the
/// dashboard and the worker do not delay each other. Dropping the engine stops the dashboard. If another process uses the address, the
/// bind is retried while the worker runs jobs.
pub(super) async fn start_beside_worker(settings: &Settings, database: &Database, store: Store) -> Result<Option<Engine>, Problem> {
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

/// Switches the dashboard's reads to the standby as soon as the standby can be reached. Until then, the dashboard reads from the main
/// database.
async fn read_from_standby(options: dashboard::Options, settings: Settings) {
    let mut is_logged = false;
    loop {
        match open_for_reading(&settings).await {
            Ok((reads, _)) => {
                let _ = options.read_from(pool_of(&reads));
                return;
            }
            Err(problem) if !is_logged => {
                is_logged = true;
                tracing::warn!("cannot connect to QUEUE_READ_URL, the dashboard reads from the main database and retries: {problem}");
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Retry interval while the standby cannot be reached.
const RETRY_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);

/// Creates an additional connection pool for `database`, with at most [`CONNECTIONS`] connections.
fn pool_of(database: &Database) -> PgPool {
    database.another_pool(PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(std::time::Duration::from_secs(5)))
}
