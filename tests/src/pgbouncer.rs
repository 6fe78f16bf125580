//! Runs a real `PgBouncer` in front of a server: the binary named by `QUEUE_TEST_PGBOUNCER`, or the installed one. The process is stopped
//! when the test ends, even if the test fails or is killed.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use sqlx::{Connection as _, PgConnection};

use crate::{beyond_tier_one, skipped};

/// Pooling mode of `PgBouncer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Session pooling: a server connection is assigned to a client until the client disconnects.
    Sessions,
    /// Transaction pooling: a server connection is assigned to a client for one transaction.
    Transactions,
}

/// Running `PgBouncer` process.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    guard: Child,
    input: Option<ChildStdin>,
}

/// Shell script that runs `PgBouncer`. When the script's standard input is closed, the script kills `PgBouncer` and removes its folder.
const GUARD: &str = r#"
"$1" "$2/pgbouncer.ini" >/dev/null 2>&1 & pid=$!
cat >/dev/null
kill -9 $pid
rm -rf "$2"
"#;

fn binary() -> Option<PathBuf> {
    let configured = std::env::var_os("QUEUE_TEST_PGBOUNCER").map(PathBuf::from);
    configured.or_else(|| {
        ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"].map(PathBuf::from).into_iter().find(|path| path.exists())
    })
}

/// Returns whether `PgBouncer` can track prepared statements under transaction pooling, which requires version 1.21.
pub fn carries_prepared() -> bool {
    let output = binary().and_then(|binary| Command::new(binary).arg("--version").output().ok());
    let output = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let mut numbers = output.split([' ', '.', '\n']).filter_map(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(1), Some(21))
}

impl PgBouncer {
    /// Starts `PgBouncer` in front of the server on the loopback port `server`, with the additional configuration lines `settings`. If
    /// `PgBouncer` is not installed, reports the skipped test and returns `None`.
    ///
    /// # Panics
    /// Panics if `PgBouncer` does not start.
    pub async fn start(what: &str, server: u16, pooling: Pooling, settings: &[&str]) -> Option<Self> {
        beyond_tier_one("starts a pooler");
        let Some(binary) = binary() else {
            skipped(what, "there is no PgBouncer");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).unwrap_or_else(|error| panic!("{error}")).port();
        let folder = std::env::temp_dir().join(format!("queue-pooler-{}-{:x}", std::process::id(), fastrand::u32(..)));
        let mode = if pooling == Pooling::Sessions { "session" } else { "transaction" };
        let own = fs::create_dir(&folder).and_then(|()| {
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
            fs::write(
                folder.join("pgbouncer.ini"),
                format!(
                    "[databases]\n* = host=127.0.0.1 port={server} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
                     unix_socket_dir =\nauth_type = any\npool_mode = {mode}\nmax_client_conn = 200\n{}\n{}\n",
                    // `PgBouncer` refuses to run as root, so a test that runs as root starts `PgBouncer` as the user `nobody`.
                    if is_root() { "user = nobody" } else { "" },
                    settings.join("\n")
                ),
            )
        });
        own.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "guard"])
            .args([&binary, &folder])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start a shell: {error}"));
        let input = guard.stdin.take();
        let started = Self { port, guard, input };
        let plain = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        crate::eventually("the pooler answers", async || {
            let Ok(options) = plain.parse::<sqlx::postgres::PgConnectOptions>() else { return false };
            match PgConnection::connect_with(&options.extra_float_digits(None)).await {
                Ok(connection) => connection.close().await.is_ok(),
                Err(_) => false,
            }
        })
        .await;
        Some(started)
    }

    /// Returns the port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of a database behind `PgBouncer`.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Stops `PgBouncer` and waits until it has ended.
    pub async fn end(mut self) {
        drop(self.input.take());
        while matches!(self.guard.try_wait(), Ok(None)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.starts_with(b"0"))
}
