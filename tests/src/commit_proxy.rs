//! Proxy between a pool and the server. The proxy cuts a connection at its COMMIT: just before the server receives the COMMIT, or just
//! after the server has committed.

use std::{
    path::PathBuf,
    str::FromStr as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    task::JoinHandle,
};

/// Moment at which a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Before the COMMIT reaches the server.
    Before,
    /// After the server has committed, but before the reply arrives.
    After,
}

/// Running proxy. The proxy cuts only connections on which a handler has begun its own transaction.
#[derive(Debug)]
pub struct Proxy {
    /// Pool that connects through the proxy.
    pub pool: PgPool,
    state: Arc<State>,
    folder: PathBuf,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    cut: Cut,
    left: AtomicUsize,
    done: AtomicUsize,
    away: AtomicBool,
}

impl Proxy {
    /// Starts a proxy in front of the server at `url`. The proxy cuts the first `times` connections on which a handler commits.
    ///
    /// # Panics
    /// Panics if the server has no Unix socket, or if the proxy cannot open its own socket.
    pub fn start(url: &str, cut: Cut, times: usize) -> Self {
        let options = PgConnectOptions::from_str(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        let folder = std::env::temp_dir().join(format!("qp-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let name = format!(".s.PGSQL.{}", options.get_port());
        let behind = options.get_socket().cloned().unwrap_or_else(|| PathBuf::from(options.get_host())).join(&name);
        assert!(behind.exists(), "no socket at {}", behind.display());
        let listener = UnixListener::bind(folder.join(&name)).unwrap_or_else(|error| panic!("cannot listen: {error}"));
        let state = Arc::new(State { cut, left: AtomicUsize::new(times), done: AtomicUsize::new(0), away: AtomicBool::new(false) });
        let theirs = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&theirs);
                let behind = behind.clone();
                tokio::spawn(async move {
                    if !state.away.load(SeqCst)
                        && let Ok(server) = UnixStream::connect(&behind).await
                    {
                        state.carry(client, server).await;
                    }
                });
            }
        });
        let pool = PgPoolOptions::new().max_connections(8).test_before_acquire(false).connect_lazy_with(options.socket(&folder));
        Self { pool, state, folder, accepting }
    }

    /// Returns the number of connections cut so far.
    pub fn cuts(&self) -> usize {
        self.state.done.load(SeqCst)
    }

    /// Sets whether the proxy rejects new connections.
    pub fn refuse_new(&self, away: bool) {
        self.state.away.store(away, SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl State {
    /// Forwards bytes in both directions until one side closes or the connection has to be cut.
    async fn carry(&self, client: UnixStream, server: UnixStream) {
        let ((mut client_in, mut client_out), (mut server_in, mut server_out)) = (client.into_split(), server.into_split());
        let back = tokio::spawn(async move {
            let _ = tokio::io::copy(&mut server_in, &mut client_out).await;
            server_in
        });
        let (mut seen, mut bytes) = (false, vec![0; 64 * 1024]);
        while let Ok(count @ 1..) = client_in.read(&mut bytes).await {
            let received = &bytes[..count];
            seen |= contains(received, b"read committed read write");
            if seen && contains(received, b"COMMIT\0") && self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                back.abort();
                let _ = back.await;
                if self.cut == Cut::After {
                    // After the client disconnects, the server processes the bytes that it has received, and then ends the session.
                    let _ = server_out.write_all(received).await;
                    let _ = server_out.shutdown().await;
                }
                self.done.fetch_add(1, SeqCst);
                return;
            }
            if server_out.write_all(received).await.is_err() {
                break;
            }
        }
        drop(server_out);
        back.abort();
    }
}

fn contains(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}
