//! Serves a router over HTTP. The number of connections is limited, and further clients wait. A client that stalls while it sends request
//! headers or reads a response is disconnected. Each request carries the peer address as `ConnectInfo`.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{Extension, Router, extract::ConnectInfo};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{Sleep, sleep, timeout},
};

/// Limits on the connections of an HTTP server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerLimits {
    /// Maximum number of concurrent connections. Further clients wait.
    pub(crate) connections: usize,
    /// Maximum time for sending the headers of a request, and maximum time without progress while a client reads a response. After this
    /// time, the client is disconnected.
    pub(crate) idle_timeout: Duration,
    /// Maximum duration of a connection. `None` for no limit.
    pub(crate) max_duration: Option<Duration>,
}

/// Delay between attempts to bind an address.
#[cfg(any(feature = "health", all(feature = "dashboard", feature = "cli")))]
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Number of failed bind attempts per logged warning.
#[cfg(any(feature = "health", all(feature = "dashboard", feature = "cli")))]
const TRIES_PER_WARNING: u32 = 30;

/// Binds `address`. Returns `None` if another process, such as a predecessor that is still stopping, uses the address.
#[cfg(any(feature = "health", all(feature = "dashboard", feature = "cli")))]
pub(crate) async fn bind(address: std::net::SocketAddr) -> io::Result<Option<TcpListener>> {
    let bound = match TcpListener::bind(address).await {
        // On a host without IPv6, `[::]` stands for all IPv4 addresses.
        Err(error) if address.is_ipv6() && address.ip().is_unspecified() && error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(("0.0.0.0", address.port())).await.map_err(|_| error)
        }
        bound => bound,
    };
    match bound {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// Binds `address`, and retries until the bind succeeds. `what` names the server in log lines.
#[cfg(any(feature = "health", all(feature = "dashboard", feature = "cli")))]
pub(crate) async fn bind_when_free(address: std::net::SocketAddr, what: &str) -> TcpListener {
    for tries in 0_u32.. {
        let error = match bind(address).await {
            Ok(Some(listener)) => return listener,
            Ok(None) => "another process uses it".to_owned(),
            Err(error) => error.to_string(),
        };
        if tries % TRIES_PER_WARNING == 0 {
            tracing::warn!(%address, %error, "cannot serve {what} yet; retrying every {} s", RETRY_INTERVAL.as_secs());
        }
        sleep(RETRY_INTERVAL).await;
    }
    std::future::pending().await
}

/// Serves connections until `stop` completes, and then drops pending requests.
pub(crate) async fn serve(listener: TcpListener, router: Router, limits: ServerLimits, stop: impl Future<Output = ()>) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let mut tasks = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = async {
            let permit = permits.clone().acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            () = &mut stop => return,
            accepted = accepted => accepted,
            Some(_) = tasks.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection from a browser or a monitor");
                sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let router = router.clone().layer(Extension(ConnectInfo(peer)));
        tasks.spawn(async move {
            handle_connection(stream, router, limits).await;
            drop(permit);
        });
    }
}

/// Serves one connection. Connection errors are ignored, because they affect only one client.
async fn handle_connection(stream: TcpStream, router: Router, ServerLimits { idle_timeout, max_duration, .. }: ServerLimits) {
    let mut server = Builder::new(TokioExecutor::new()).http1_only();
    server.http1().timer(TokioTimer::new()).header_read_timeout(idle_timeout);
    let stream = TokioIo::new(StallGuard { stream, idle_timeout, stalled: None });
    let served = server.serve_connection(stream, TowerToHyperService::new(router));
    match max_duration {
        Some(max_duration) => drop(timeout(max_duration, served).await),
        None => drop(served.await),
    }
}

/// Connection that fails if the client stops reading the response.
struct StallGuard {
    stream: TcpStream,
    idle_timeout: Duration,
    /// Timer that runs while the client does not read.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl StallGuard {
    /// Returns an error if no bytes could be sent during the idle timeout.
    fn check_progress(&mut self, tried: Poll<io::Result<usize>>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if tried.is_ready() {
            self.stalled = None;
            return tried;
        }
        let idle_timeout = self.idle_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(idle_timeout)));
        stalled.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for StallGuard {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for StallGuard {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_progress(tried, context)
    }

    // A socket needs no flush, and its shutdown never blocks, so neither call needs a progress check.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.check_progress(tried, context)
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        task::JoinHandle,
    };

    use super::*;

    const HASTY: ServerLimits = ServerLimits { connections: 3, idle_timeout: Duration::from_millis(300), max_duration: None };

    /// Response size that exceeds the socket buffers.
    const LARGE: usize = 64 * 1024 * 1024;

    async fn start(limits: ServerLimits) -> (std::net::SocketAddr, JoinHandle<()>) {
        let router = Router::new()
            .route("/", get(async || "here"))
            .route("/large", get(async || vec![b'x'; LARGE]))
            .route("/slow", get(async || sleep(4 * HASTY.idle_timeout).await));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        (listener.local_addr().unwrap(), tokio::spawn(serve(listener, router, limits, std::future::pending())))
    }

    #[cfg(any(feature = "health", feature = "cli"))]
    #[tokio::test]
    async fn the_unspecified_ipv6_address_accepts_ipv4() {
        let listener = bind("[::]:0".parse().unwrap()).await.unwrap().unwrap();
        TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).await.unwrap();
    }

    /// Sends a partial request and keeps the connection open.
    async fn send_partial(address: std::net::SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    async fn request(address: std::net::SocketAddr, path: &str) -> Vec<u8> {
        let mut stream = send_partial(address, &format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")).await;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    #[ignore = "deep"]
    async fn stalled_clients_are_disconnected() {
        let large = "GET /large HTTP/1.1\r\nHost: h\r\n\r\n";
        for text in ["", "GET / HTT", large, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"] {
            let (address, serving) = start(HASTY).await;
            let mut silent = Vec::new();
            for _ in 0..3 * HASTY.connections {
                silent.push(send_partial(address, text).await);
            }
            let answered = timeout(Duration::from_mins(1), request(address, "/")).await;
            assert!(answered.is_ok_and(|response| response.ends_with(b"here")), "{text:?}");
            serving.abort();
        }
    }

    #[tokio::test]
    async fn slow_responses_and_slow_readers_are_not_disconnected() {
        let (address, serving) = start(HASTY).await;
        assert!(request(address, "/slow").await.starts_with(b"HTTP/1.1 200"));
        let mut slow = send_partial(address, "GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
        let (mut read, mut part, mut pauses) = (0, vec![0; LARGE / 8], 0);
        loop {
            let bytes = slow.read(&mut part).await.unwrap();
            read += bytes;
            if bytes == 0 {
                break;
            }
            if read > pauses * LARGE / 8 {
                pauses += 1;
                sleep(HASTY.idle_timeout / 3).await;
            }
        }
        assert!(read > LARGE && pauses >= 8, "{read} {pauses}");
        serving.abort();
    }

    #[tokio::test]
    async fn connections_end_after_the_maximum_duration() {
        let (address, serving) =
            start(ServerLimits { idle_timeout: Duration::from_mins(1), max_duration: Some(Duration::from_millis(300)), ..HASTY }).await;
        let mut silent = send_partial(address, "GET /").await;
        assert_eq!(timeout(Duration::from_mins(1), silent.read(&mut [0; 9])).await.unwrap().unwrap_or(0), 0);
        serving.abort();
    }
}
