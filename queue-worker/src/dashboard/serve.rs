//! A server of its own, for whoever has no web server.

use std::{net::SocketAddr, time::Duration};

use queue_core::Store;
use sqlx::PgPool;
use tokio::net::TcpListener;

use super::{options::Options, router};
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
    match &options.token {
        None if !address.ip().to_canonical().is_loopback() => return Err(Error::OpenDashboard { address }),
        Some(token) if token.chars().count() < Options::SHORTEST_TOKEN => {
            return Err(Error::Config { key: "dashboard_token", value: "too short".to_owned(), range: "at least 16 characters" });
        }
        _ => {}
    }
    let listener = TcpListener::bind(address).await.map_err(|why| Error::Listen { address, why })?;
    let ip = address.ip();
    // The address itself is a name that leads here, unless it stands for all of them.
    let own = match ip {
        _ if ip.is_unspecified() => None,
        std::net::IpAddr::V4(ip) => Some(ip.to_string()),
        std::net::IpAddr::V6(ip) => Some(format!("[{ip}]")),
    };
    let options = own.into_iter().fold(options, Options::host);
    Ok(Listening { listener, options })
}

impl Listening {
    /// Where: with the port that was given, if 0 was asked for.
    ///
    /// # Panics
    /// Never: the socket is bound.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("a socket that is bound has an address")
    }

    /// Serves until `stop` completes. Requests that are on their way then are not waited for.
    pub async fn serve(self, pool: PgPool, store: Store, stop: impl Future<Output = ()>) {
        serve(self.listener, router(pool, store, self.options), BOUNDS, stop).await;
    }
}
