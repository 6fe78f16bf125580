//! Standalone HTTP server for the dashboard.

use std::{net::SocketAddr, time::Duration};

use queue_core::{Store, stores::Roster};
use sqlx::PgPool;
use tokio::net::TcpListener;

use super::{options::Options, routed, routed_over};
#[cfg(feature = "cli")]
use crate::serve::{bind, bind_when_free};
use crate::{
    error::Error,
    serve::{ServerLimits, serve},
};

/// Connection limits of the server. The duration of a connection is unlimited, because live pages are long-lived streams.
const LIMITS: ServerLimits = ServerLimits { connections: 128, idle_timeout: Duration::from_secs(30), max_duration: None };

/// Bound listener of a standalone dashboard. Requests are not served before [`Listening::serve`] is called.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
/// use queue_worker::{dashboard::{self, Options}, shutdown_signal};
///
/// let listening = dashboard::listen("127.0.0.1:0".parse().unwrap(), Options::default()).await?;
/// println!("port {}", listening.address().port());
/// listening.serve(pool, queue_core::Store::default(), shutdown_signal()).await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    options: Options,
}

/// Binds the address of a standalone dashboard. An address that is not a loopback address requires a token. Call [`Listening::serve`] to
/// serve requests.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
/// use queue_worker::{dashboard::{self, Options}, shutdown_signal};
///
/// let listening = dashboard::listen("127.0.0.1:7070".parse().unwrap(), Options::default()).await?;
/// println!("http://{}", listening.address());
/// listening.serve(pool, queue_core::Store::default(), shutdown_signal()).await;
/// # Ok(()) }
/// ```
///
/// # Errors
/// Returns [`Error::OpenDashboard`] for a non-loopback address without a token, [`Error::Config`] for an invalid token or host name, and
/// [`Error::Listen`] if the address cannot be bound.
pub async fn listen(address: SocketAddr, options: Options) -> Result<Listening, Error> {
    check(address, &options)?;
    let listener = TcpListener::bind(address).await.map_err(|why| Error::Listen { address, why })?;
    Ok(Listening { listener, options: named(address, options) })
}

/// Binds the address like [`listen`]. If the address is in use, returns successfully so that the worker starts without delay.
/// [`PendingListener::serve`] then waits until the address is free.
#[cfg(feature = "cli")]
pub(crate) async fn listen_beside(address: SocketAddr, options: Options) -> Result<PendingListener, Error> {
    check(address, &options)?;
    let listener = bind(address).await.map_err(|why| Error::Listen { address, why })?;
    Ok(PendingListener { address, listener, options: named(address, options) })
}

/// Checks the options. A token is required unless the address is a loopback address.
fn check(address: SocketAddr, options: &Options) -> Result<(), Error> {
    if options.token.is_none() && !address.ip().to_canonical().is_loopback() {
        return Err(Error::OpenDashboard { address });
    }
    options.check()
}

/// Adds the IP address to the accepted host names, unless the address is unspecified.
fn named(address: SocketAddr, options: Options) -> Options {
    let ip = address.ip();
    let own = match ip {
        _ if ip.is_unspecified() => None,
        std::net::IpAddr::V4(ip) => Some(ip.to_string()),
        std::net::IpAddr::V6(ip) => Some(format!("[{ip}]")),
    };
    own.into_iter().fold(options, Options::host)
}

/// Listener whose address may still be in use by another process.
#[cfg(feature = "cli")]
pub(crate) struct PendingListener {
    address: SocketAddr,
    listener: Option<TcpListener>,
    options: Options,
}

#[cfg(feature = "cli")]
impl PendingListener {
    /// Waits until the address is free, and then serves requests.
    pub(crate) async fn serve(self, pool: PgPool, store: Store) {
        let Self { address, listener, options } = self;
        let listener = match listener {
            Some(listener) => listener,
            None => bind_when_free(address, "the dashboard").await,
        };
        let address = listener.local_addr().unwrap_or(address);
        tracing::info!(%address, "serving the dashboard");
        Listening { listener, options }.serve(pool, store, std::future::pending()).await;
    }
}

impl Listening {
    /// Returns the bound address, with the assigned port if port 0 was requested.
    ///
    /// # Panics
    /// Panics if the bound socket has no address, which never happens.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("a bound socket has an address")
    }

    /// Sets the pool for reads, as [`Options::read_from`] does.
    #[must_use]
    pub fn read_from(mut self, pool: PgPool) -> Self {
        self.options = self.options.read_from(pool);
        self
    }

    /// Serves requests until `stop` completes. Does not wait for requests in progress.
    pub async fn serve(self, pool: PgPool, store: Store, stop: impl Future<Output = ()>) {
        serve(self.listener, routed(pool, store, self.options), LIMITS, stop).await;
    }

    /// Serves the dashboard of all stores of a roster until `stop` completes. See [`service_over`](super::service_over).
    pub async fn serve_over(self, roster: &Roster, stop: impl Future<Output = ()>) {
        serve(self.listener, routed_over(roster, self.options), LIMITS, stop).await;
    }
}
