//! A server of its own, for whoever has no web server.

use std::{net::SocketAddr, time::Duration};

use queue_core::{Store, stores::Roster};
use sqlx::PgPool;
use tokio::net::TcpListener;

use super::{options::Options, routed, routed_over};
#[cfg(feature = "cli")]
use crate::serve::{bind, free};
use crate::{
    error::Error,
    serve::{Bounds, serve},
};

/// Streams may last.
const BOUNDS: Bounds = Bounds { connections: 128, silence: Duration::from_secs(30), longest: None };

/// A place to be reached at, which nobody serves yet.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    options: Options,
}

/// Opens the address, if that is safe: one that others can reach wants a token. [`Listening::serve`] serves it.
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
/// [`Error::OpenDashboard`] without a token where others can reach it; [`Error::Config`] for a token that is too short; [`Error::Listen`].
pub async fn listen(address: SocketAddr, options: Options) -> Result<Listening, Error> {
    check(address, &options)?;
    let listener = TcpListener::bind(address).await.map_err(|why| Error::Listen { address, why })?;
    Ok(Listening { listener, options: named(address, options) })
}

/// As [`listen`], but an address that another has is waited for: whoever has jobs to do does not hang on it.
#[cfg(feature = "cli")]
pub(crate) async fn listen_beside(address: SocketAddr, options: Options) -> Result<Pending, Error> {
    check(address, &options)?;
    let listener = bind(address).await.map_err(|why| Error::Listen { address, why })?;
    Ok(Pending { address, listener, options: named(address, options) })
}

/// Whether it is safe to be reached at this address.
fn check(address: SocketAddr, options: &Options) -> Result<(), Error> {
    if options.token.is_none() && !address.ip().to_canonical().is_loopback() {
        return Err(Error::OpenDashboard { address });
    }
    options.check()
}

/// The address itself is a name that leads here, unless it stands for all of them.
fn named(address: SocketAddr, options: Options) -> Options {
    let ip = address.ip();
    let own = match ip {
        _ if ip.is_unspecified() => None,
        std::net::IpAddr::V4(ip) => Some(ip.to_string()),
        std::net::IpAddr::V6(ip) => Some(format!("[{ip}]")),
    };
    own.into_iter().fold(options, Options::host)
}

/// A place that may be another's still.
#[cfg(feature = "cli")]
pub(crate) struct Pending {
    address: SocketAddr,
    listener: Option<TcpListener>,
    options: Options,
}

#[cfg(feature = "cli")]
impl Pending {
    /// Serves, once the address is free.
    pub(crate) async fn serve(self, pool: PgPool, store: Store) {
        let Self { address, listener, options } = self;
        let listener = match listener {
            Some(listener) => listener,
            None => free(address, "the dashboard").await,
        };
        let address = listener.local_addr().unwrap_or(address);
        tracing::info!(%address, "serving the dashboard");
        Listening { listener, options }.serve(pool, store, std::future::pending()).await;
    }
}

impl Listening {
    /// Where: with the port that was given, if 0 was asked for.
    ///
    /// # Panics
    /// Never: the socket is bound.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("a socket that is bound has an address")
    }

    /// As [`Options::read_from`].
    #[must_use]
    pub fn read_from(mut self, pool: PgPool) -> Self {
        self.options = self.options.read_from(pool);
        self
    }

    /// Serves until `stop` completes. Requests that are on their way then are not waited for.
    pub async fn serve(self, pool: PgPool, store: Store, stop: impl Future<Output = ()>) {
        serve(self.listener, routed(pool, store, self.options), BOUNDS, stop).await;
    }

    /// As [`Listening::serve`], over the stores of a roster: see [`service_over`](super::service_over).
    pub async fn serve_over(self, roster: &Roster, stop: impl Future<Output = ()>) {
        serve(self.listener, routed_over(roster, self.options), BOUNDS, stop).await;
    }
}
