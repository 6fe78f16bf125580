//! HTTP connections, with a bound on each thing that a client may leave undone: on saying what it wants, and on taking the answer. So many are
//! served at a time; others wait. Each request is told of its peer, as `ConnectInfo`. Knows nothing of what is asked.

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

/// How much patience a server has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// So many clients are connected at a time; others wait.
    pub(crate) connections: usize,
    /// Whoever says nothing for so long when it is its turn, or takes nothing of its answer, is not waited for.
    pub(crate) silence: Duration,
    /// No connection lasts longer, whatever is said on it.
    pub(crate) longest: Option<Duration>,
}

/// Between two tries to have an address that another has.
#[cfg(any(feature = "health", all(feature = "dashboard", feature = "cli")))]
const AGAIN: Duration = Duration::from_secs(2);

/// It is said so often that it is not free.
#[cfg(any(feature = "health", all(feature = "dashboard", feature = "cli")))]
const SAID: u32 = 30;

/// The address; `None` if another has it, as the process that this one follows may for a while.
#[cfg(any(feature = "health", all(feature = "dashboard", feature = "cli")))]
pub(crate) async fn bind(address: std::net::SocketAddr) -> io::Result<Option<TcpListener>> {
    let bound = match TcpListener::bind(address).await {
        // A machine without IPv6: `[::]` is every address, and there are those of IPv4.
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

/// The address, once it is free; it is said what waits for it.
#[cfg(any(feature = "health", all(feature = "dashboard", feature = "cli")))]
pub(crate) async fn free(address: std::net::SocketAddr, what: &str) -> TcpListener {
    for tries in 0_u32.. {
        let error = match bind(address).await {
            Ok(Some(listener)) => return listener,
            Ok(None) => "another process has it".to_owned(),
            Err(error) => error.to_string(),
        };
        if tries % SAID == 0 {
            tracing::warn!(%address, %error, "{what} cannot be served yet; it is tried again every {} s", AGAIN.as_secs());
        }
        sleep(AGAIN).await;
    }
    std::future::pending().await
}

/// Serves until `stop` completes. Requests that are on their way then are not waited for.
pub(crate) async fn serve(listener: TcpListener, router: Router, bounds: Bounds, stop: impl Future<Output = ()>) {
    let places = Arc::new(Semaphore::new(bounds.connections));
    let mut tasks = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            () = &mut stop => return,
            accepted = accepted => accepted,
            Some(_) = tasks.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot take a connection from a browser or a monitor");
                sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let router = router.clone().layer(Extension(ConnectInfo(peer)));
        tasks.spawn(async move {
            answer(stream, router, bounds).await;
            drop(place);
        });
    }
}

/// What goes wrong on one connection is its client's to see.
async fn answer(stream: TcpStream, router: Router, Bounds { silence, longest, .. }: Bounds) {
    let mut server = Builder::new(TokioExecutor::new()).http1_only();
    server.http1().timer(TokioTimer::new()).header_read_timeout(silence);
    let stream = TokioIo::new(Impatient { stream, silence, waits: None });
    let served = server.serve_connection(stream, TowerToHyperService::new(router));
    match longest {
        Some(longest) => drop(timeout(longest, served).await),
        None => drop(served.await),
    }
}

/// A connection that ends if its client takes nothing of what it is sent.
struct Impatient {
    stream: TcpStream,
    silence: Duration,
    /// While there is something that the client does not take.
    waits: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    /// What came of a try to send something: an error if the last one that sent anything is too long ago.
    fn judge(&mut self, tried: Poll<io::Result<usize>>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if tried.is_ready() {
            self.waits = None;
            return tried;
        }
        let silence = self.silence;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(silence)));
        waits.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Impatient {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(tried, context)
    }

    // A socket has nothing to flush, and never waits for its end.
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
        self.judge(tried, context)
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

    const HASTY: Bounds = Bounds { connections: 3, silence: Duration::from_millis(300), longest: None };

    /// More than fits into what lies between a server and a client that does not read.
    const LARGE: usize = 64 * 1024 * 1024;

    async fn served(bounds: Bounds) -> (std::net::SocketAddr, JoinHandle<()>) {
        let router = Router::new()
            .route("/", get(async || "here"))
            .route("/large", get(async || vec![b'x'; LARGE]))
            .route("/slow", get(async || sleep(4 * HASTY.silence).await));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        (listener.local_addr().unwrap(), tokio::spawn(serve(listener, router, bounds, std::future::pending())))
    }

    #[cfg(any(feature = "health", feature = "cli"))]
    #[tokio::test]
    async fn the_unspecified_address_of_ipv6_is_reached_by_ipv4_as_well() {
        let listener = bind("[::]:0".parse().unwrap()).await.unwrap().unwrap();
        TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).await.unwrap();
    }

    /// Says so much of a request, and keeps the connection.
    async fn say(address: std::net::SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    async fn ask(address: std::net::SocketAddr, path: &str) -> Vec<u8> {
        let mut stream = say(address, &format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")).await;
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        said
    }

    #[tokio::test]
    #[ignore = "deep"]
    async fn clients_that_never_send_or_never_read_give_their_places_to_others() {
        let large = "GET /large HTTP/1.1\r\nHost: h\r\n\r\n";
        for text in ["", "GET / HTT", large, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"] {
            let (address, serving) = served(HASTY).await;
            let mut silent = Vec::new();
            for _ in 0..3 * HASTY.connections {
                silent.push(say(address, text).await);
            }
            let answered = timeout(Duration::from_mins(1), ask(address, "/")).await;
            assert!(answered.is_ok_and(|said| said.ends_with(b"here")), "{text:?}");
            serving.abort();
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_long_in_coming_or_slowly_read_is_no_silence() {
        let (address, serving) = served(HASTY).await;
        assert!(ask(address, "/slow").await.starts_with(b"HTTP/1.1 200"));
        let mut slow = say(address, "GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
        let (mut read, mut part, mut pauses) = (0, vec![0; LARGE / 8], 0);
        loop {
            let bytes = slow.read(&mut part).await.unwrap();
            read += bytes;
            if bytes == 0 {
                break;
            }
            if read > pauses * LARGE / 8 {
                pauses += 1;
                sleep(HASTY.silence / 3).await;
            }
        }
        assert!(read > LARGE && pauses >= 8, "{read} {pauses}");
        serving.abort();
    }

    #[tokio::test]
    async fn no_connection_outlives_its_bound() {
        let (address, serving) =
            served(Bounds { silence: Duration::from_mins(1), longest: Some(Duration::from_millis(300)), ..HASTY }).await;
        let mut silent = say(address, "GET /").await;
        assert_eq!(timeout(Duration::from_mins(1), silent.read(&mut [0; 9])).await.unwrap().unwrap_or(0), 0);
        serving.abort();
    }
}
