//! Counts the statements that clients send to a database, by first line. A proxy in front of the database parses the client messages.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    str::FromStr as _,
    sync::{Arc, Mutex, PoisonError},
};

use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream, unix::OwnedReadHalf},
    task::JoinHandle,
};

type Counts = BTreeMap<String, usize>;

/// Running proxy that counts statements.
#[derive(Debug)]
pub struct Counted {
    /// Pool that connects through the proxy.
    pub pool: PgPool,
    counts: Arc<Mutex<Counts>>,
    folder: PathBuf,
    accepting: JoinHandle<()>,
}

impl Counted {
    /// Starts a proxy for the database at `url`.
    ///
    /// # Panics
    /// Panics if no socket can be opened.
    pub fn start(url: &str) -> Self {
        let options = PgConnectOptions::from_str(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        let folder = std::env::temp_dir().join(format!("qc-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let name = format!(".s.PGSQL.{}", options.get_port());
        let behind = options.get_socket().cloned().unwrap_or_else(|| PathBuf::from(options.get_host())).join(&name);
        let listener = UnixListener::bind(folder.join(&name)).unwrap_or_else(|error| panic!("cannot listen: {error}"));
        let counts = Arc::<Mutex<Counts>>::default();
        let accepting = tokio::spawn(accept(listener, behind, Arc::clone(&counts)));
        Self { pool: PgPoolOptions::new().connect_lazy_with(options.socket(&folder)), counts, folder, accepting }
    }

    /// Returns the number of times that each statement was sent since the last call. The key of a statement is its first line.
    pub fn take(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn accept(listener: UnixListener, behind: PathBuf, counts: Arc<Mutex<Counts>>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(carry(client, Path::new(&behind).to_owned(), Arc::clone(&counts)));
    }
}

/// Forwards messages in both directions until one side closes, and counts the statements in the client's messages.
async fn carry(client: UnixStream, behind: PathBuf, counts: Arc<Mutex<Counts>>) -> std::io::Result<()> {
    let server = UnixStream::connect(&behind).await?;
    let ((mut client_in, mut client_out), (mut server_in, mut server_out)) = (client.into_split(), server.into_split());
    let back = tokio::spawn(async move { tokio::io::copy(&mut server_in, &mut client_out).await });
    let mut prepared = HashMap::new();
    // The startup message has no type byte.
    let mut has_letter = false;
    while let Ok(message) = read_message(&mut client_in, has_letter).await {
        let text = match message.first() {
            _ if !has_letter => None,
            Some(b'Q') => Some(first_line(&text_at(&message, 5).0)),
            Some(b'P') => {
                let (name, end) = text_at(&message, 5);
                prepared.insert(name, first_line(&text_at(&message, end).0));
                None
            }
            Some(b'B') => prepared.get(&text_at(&message, text_at(&message, 5).1).0).cloned(),
            _ => None,
        };
        if let Some(text) = text {
            *counts.lock().unwrap_or_else(PoisonError::into_inner).entry(text).or_default() += 1;
        }
        has_letter = true;
        server_out.write_all(&message).await?;
    }
    drop(server_out);
    back.abort();
    Ok(())
}

/// Reads a message, including its length and, with `has_letter`, its type byte.
async fn read_message(client: &mut OwnedReadHalf, has_letter: bool) -> std::io::Result<Vec<u8>> {
    let head = if has_letter { 5 } else { 4 };
    let mut message = vec![0; head];
    client.read_exact(&mut message).await?;
    let length = u32::from_be_bytes([message[head - 4], message[head - 3], message[head - 2], message[head - 1]]);
    message.resize(head - 4 + length as usize, 0);
    client.read_exact(&mut message[head..]).await?;
    Ok(message)
}

/// Returns the null-terminated text at the offset `from`, and the offset after its terminator.
fn text_at(message: &[u8], from: usize) -> (String, usize) {
    let rest = message.get(from..).unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    (String::from_utf8_lossy(&rest[..end]).into_owned(), from + end + 1)
}

fn first_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.next().unwrap_or_default();
    line.chars().take(100).collect()
}
