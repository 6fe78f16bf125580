//! Private PostgreSQL server that a test can kill and restart on the same data. The server listens on loopback and runs with fsync. A
//! standby can follow the server. The server and all registered processes end with the test process, even if the test process is killed.
//! A shell waits for the end of its input, which the test process keeps open. The shell then ends these processes and deletes the data.

use std::{
    fs::{self, File},
    io::Write as _,
    net::TcpListener,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use queue_core::{Store, migrate};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, postgres::PgPoolOptions};

use crate::{Clock, beyond_tier_one};

/// Shell script that reads process ids from its input. At the end of the input, the script ends these processes and the server, and
/// removes the cluster.
const GUARD: &str = r#"
pids=
while read -r line; do
  case $line in
    +*) pids="$pids ${line#+}" ;;
    -*) rest=; for pid in $pids; do [ "$pid" = "${line#-}" ] || rest="$rest $pid"; done; pids=$rest ;;
  esac
done
for pid in $pids; do kill -9 "$pid"; done
[ -f "$1/data/postmaster.pid" ] && kill -QUIT "$(head -n 1 "$1/data/postmaster.pid")" && sleep 1
mountpoint -q "$1/small" && umount -l "$1/small"
rm -rf "$1"
"#;

/// Test server with its data folder. Clones share the server.
#[derive(Clone, Debug)]
pub struct TestServer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    bin: PathBuf,
    owner: Option<(u32, u32)>,
    port: u16,
    settings: Vec<String>,
    environment: Vec<(&'static str, String)>,
    server: Mutex<Option<Child>>,
    guard: Mutex<ChildStdin>,
}

/// Migrated database on the server.
#[derive(Clone, Debug)]
pub struct Database {
    /// Name of the database.
    pub name: String,
    /// Pool whose connections bypass all proxies.
    pub pool: PgPool,
}

impl TestServer {
    /// Creates a cluster in the system's temporary folder and starts its server.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts a server with additional settings, such as `max_connections=12`.
    pub async fn start_with(settings: &[&str]) -> Result<Self> {
        Self::started(Self::folder(settings)?).await
    }

    /// Starts a server whose wall clock is `clock`.
    pub async fn start_by(clock: &Clock) -> Result<Self> {
        Self::started(Self::folder_in(&[], clock.environment().into())?).await
    }

    async fn started(server: Self) -> Result<Self> {
        server.make("initdb", &["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "-D"])?;
        server.restart().await?;
        Ok(server)
    }

    /// Starts a server whose transaction ids exceed four billion. Rows store only the low 32 bits of such an id.
    pub async fn start_late() -> Result<Self> {
        let server = Self::folder(&[])?;
        server.make("initdb", &["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"])?;
        server.make("pg_resetwal", &["--epoch=1", "-D"])?;
        server.restart().await?;
        Ok(server)
    }

    /// Starts a server with an additional superuser `sealed`, whose TCP connections must be encrypted.
    pub async fn start_encrypted() -> Result<Self> {
        let server = Self::folder(&["ssl=on"])?;
        server.make("initdb", &["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"])?;
        let rules = fs::read_to_string(server.data().join("pg_hba.conf"))?;
        let rules = format!("hostssl all sealed 127.0.0.1/32 trust\nhost all sealed all reject\n{rules}");
        let files = [("pg_hba.conf", rules.as_str()), ("server.crt", include_str!("../tls/server.pem"))];
        for (name, text) in files.into_iter().chain([("server.key", include_str!("../tls/server.key"))]) {
            let path = server.data().join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            if let Some((uid, gid)) = server.0.owner {
                chown(&path, Some(uid), Some(gid))?;
            }
        }
        server.restart().await?;
        let mut admin = PgConnection::connect(&server.url("postgres")).await?;
        sqlx::raw_sql("create role sealed superuser login").execute(&mut admin).await?;
        Ok(server)
    }

    /// Starts a standby that follows this server through the port `upstream` of the server or of a proxy. The standby is read-only until
    /// it is promoted.
    pub async fn standby(&self, upstream: u16) -> Result<Self> {
        let from = |port: u16| format!("host=127.0.0.1 port={port} user=postgres sslmode=disable");
        let standby = Self::folder(&[&format!("primary_conninfo={}", from(upstream))])?;
        standby.make("pg_basebackup", &["-d", &from(self.port()), "--write-recovery-conf", "--checkpoint=fast", "-D"])?;
        standby.restart().await?;
        Ok(standby)
    }

    /// Dumps the database `database` of the server `from`, and restores the dump on this server.
    pub async fn restore(&self, from: &Self, database: &str) -> Result<()> {
        let mut admin = PgConnection::connect(&self.url("postgres")).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("create database {database}"))).execute(&mut admin).await?;
        let dump = self.0.folder.join("dump.sql");
        let run = |program: &str, url: String, flag: &str| -> Result<()> {
            let done = self.command(program).arg(&url).arg(flag).arg(&dump).stdout(Stdio::null()).output()?;
            if !done.status.success() {
                bail!("{program}: {}", String::from_utf8_lossy(&done.stderr));
            }
            Ok(())
        };
        run("pg_dump", from.url(database), "-f")?;
        run("psql", self.url(database), "-f")
    }

    fn folder(settings: &[&str]) -> Result<Self> {
        Self::folder_in(settings, Vec::new())
    }

    /// Creates the folder of a server that runs with the environment variables `environment`.
    fn folder_in(settings: &[&str], environment: Vec<(&'static str, String)>) -> Result<Self> {
        beyond_tier_one("starts a server of its own");
        let folder = std::env::temp_dir().join(format!("queue-chaos-{}-{:x}", std::process::id(), fastrand::u32(..)));
        fs::create_dir(&folder)?;
        let owner = if id("-u", None) == Some(0) {
            Some(server_user().context("no user `postgres` or `nobody` to run the server as")?)
        } else {
            None
        };
        if let Some((uid, gid)) = owner {
            chown(&folder, Some(uid), Some(gid))?;
        }
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "guard"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let guard = Mutex::new(guard.stdin.take().context("the guard has no input")?);
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Ok(Self(Arc::new(Inner { folder, bin: binaries()?, owner, port, settings, environment, server: Mutex::default(), guard })))
    }

    /// Runs a program of the server, such as `initdb`, on the data folder.
    fn make(&self, program: &str, args: &[&str]) -> Result<()> {
        let made = self.command(program).args(args).arg(self.data()).stdout(Stdio::null()).output()?;
        if !made.status.success() {
            bail!("{program}: {}", String::from_utf8_lossy(&made.stderr));
        }
        Ok(())
    }

    /// Mounts an in-memory file system of `megabytes` MB in the server's folder. Returns its path. Requires root.
    pub fn small(&self, megabytes: u32) -> Result<PathBuf> {
        let small = self.0.folder.join("small");
        fs::create_dir(&small)?;
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "none"]).arg(&small).output()?;
        if !mounted.status.success() {
            bail!("mount: {}", String::from_utf8_lossy(&mounted.stderr));
        }
        if let Some((uid, gid)) = self.0.owner {
            chown(&small, Some(uid), Some(gid))?;
        }
        Ok(small)
    }

    /// Returns the server's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// Creates a database with the store and the tables `ledger` and `effect`.
    pub async fn database(&self, name: &str) -> Result<Database> {
        self.database_with(name, "").await
    }

    /// Creates a database like [`TestServer::database`], with additional options of `create database`.
    pub async fn database_with(&self, name: &str, options: &str) -> Result<Database> {
        let mut admin = PgConnection::connect(&url(self.0.port, "postgres")).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("create database {name} {options}"))).execute(&mut admin).await?;
        let pool = PgPoolOptions::new().max_connections(4).connect(&url(self.0.port, name)).await?;
        migrate(&pool, Store::default()).await?;
        sqlx::raw_sql("create table effect (job bigint, attempt int, pid int, at timestamptz default clock_timestamp())")
            .execute(&pool)
            .await?;
        sqlx::raw_sql("create table ledger (n bigint, at timestamptz default clock_timestamp()); create index on ledger (n)")
            .execute(&pool)
            .await?;
        Ok(Database { name: name.to_owned(), pool })
    }

    /// Kills the server with `kill -9`.
    pub fn kill(&self) -> Result<()> {
        let mut server = lock(&self.0.server);
        let server = server.as_mut().context("the server is not running")?;
        server.kill()?;
        server.wait()?;
        Ok(())
    }

    /// Stops the server as a service manager does. Connections end with SQLSTATE 57P01.
    pub fn stop(&self) -> Result<()> {
        let mut server = lock(&self.0.server);
        let server = server.as_mut().context("the server is not running")?;
        Command::new("kill").args(["-INT", &server.id().to_string()]).status()?;
        server.wait()?;
        Ok(())
    }

    /// Stops the server like `pg_ctl stop -m immediate`. Connections are cut, at most after a warning.
    pub fn quit(&self) -> Result<()> {
        let mut server = lock(&self.0.server);
        let server = server.as_mut().context("the server is not running")?;
        Command::new("kill").args(["-QUIT", &server.id().to_string()]).status()?;
        server.wait()?;
        Ok(())
    }

    /// Promotes the standby. Returns once the standby accepts writes.
    pub async fn promote(&self) -> Result<()> {
        let mut admin = PgConnection::connect(&self.url("postgres")).await?;
        if !sqlx::query_scalar("select pg_promote()").fetch_one(&mut admin).await? {
            bail!("the standby is not promoted");
        }
        Ok(())
    }

    /// Returns the path of the server's log.
    pub fn log(&self) -> PathBuf {
        self.0.folder.join("postgres.log")
    }

    /// Returns the URL of a database on the server, bypassing all proxies.
    pub fn url(&self, database: &str) -> String {
        url(self.0.port, database)
    }

    /// Starts the server and waits until it responds. Retries, because processes of a killed server may hold its shared memory for a
    /// moment.
    pub async fn restart(&self) -> Result<()> {
        let until = Instant::now() + Duration::from_mins(1);
        loop {
            if Instant::now() > until {
                let log = fs::read_to_string(self.0.folder.join("postgres.log")).unwrap_or_default();
                bail!("the server does not start: {}", log.lines().rev().take(5).collect::<Vec<_>>().join(" | "));
            }
            let ended = lock(&self.0.server).as_mut().is_none_or(|server| !matches!(server.try_wait(), Ok(None)));
            if ended {
                *lock(&self.0.server) = Some(self.spawn()?);
            }
            if let Ok(admin) = PgConnection::connect(&url(self.0.port, "postgres")).await {
                let _ = admin.close().await;
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn spawn(&self) -> Result<Child> {
        let log = File::options().create(true).append(true).open(self.0.folder.join("postgres.log"))?;
        let settings = [
            format!("port={}", self.0.port),
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={}", self.0.folder.display()),
            "max_connections=200".to_owned(),
            "shared_buffers=128MB".to_owned(),
            "huge_pages=off".to_owned(),
            "max_wal_size=1GB".to_owned(),
            // The shared memory is in the server's folder, because a killed server would otherwise leave it behind.
            "dynamic_shared_memory_type=mmap".to_owned(),
            "log_error_verbosity=terse".to_owned(),
        ];
        let mut server = self.command("postgres");
        let settings = settings.iter().chain(&self.0.settings);
        server.envs(self.0.environment.iter().map(|(name, value)| (*name, value)));
        server.arg("-D").arg(self.data()).args(settings.flat_map(|setting| ["-c", setting.as_str()]));
        Ok(server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0).spawn()?)
    }

    fn data(&self) -> PathBuf {
        self.0.folder.join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.0.bin.join(program));
        if let Some((uid, gid)) = self.0.owner {
            command.uid(uid).gid(gid);
        }
        command.current_dir("/").env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C");
        command
    }

    /// Registers a process that must end with the test process.
    pub fn watch(&self, pid: u32) {
        let _ = writeln!(lock(&self.0.guard), "+{pid}");
    }

    /// Deregisters a process that has ended.
    pub fn unwatch(&self, pid: u32) {
        let _ = writeln!(lock(&self.0.guard), "-{pid}");
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(server) = lock(&self.server).as_mut() {
            let _ = Command::new("kill").args(["-QUIT", &server.id().to_string()]).stderr(Stdio::null()).status();
            let _ = server.wait();
        }
        // The guard script also unmounts the in-memory file system, but no code waits for the script.
        let small = self.folder.join("small");
        if small.exists() {
            let _ = Command::new("umount").arg("-l").arg(small).status();
        }
    }
}

impl Database {
    /// Returns the single value of a query.
    pub async fn count(&self, query: &str) -> Result<i64> {
        sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(&self.pool).await.with_context(|| query.to_owned())
    }
}

/// Returns the URL of a database, given the loopback port of the server or of a proxy.
pub fn url(port: u16, database: &str) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/{database}?sslmode=disable")
}

/// Locks a mutex, ignoring poisoning.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the folder in `QUEUE_PG_BIN` if set, else the program folder of the newest server in `/usr/lib/postgresql` or on the `PATH`.
fn binaries() -> Result<PathBuf> {
    if let Some(bin) = std::env::var_os("QUEUE_PG_BIN") {
        return Ok(bin.into());
    }
    let versions = |parent: &str| fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    let mut found: Vec<(u32, PathBuf)> = versions("/usr/lib/postgresql")
        .into_iter()
        .filter_map(|path| Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin"))))
        .collect();
    found.sort();
    let on_path = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).map(|path| (0, path)).collect::<Vec<_>>();
    let complete = |bin: &Path| bin.join("initdb").is_file() && bin.join("postgres").is_file();
    let all = found.into_iter().rev().chain(on_path).map(|(_, bin)| bin);
    all.into_iter().find(|bin| complete(bin)).context("no PostgreSQL server: install the package `postgresql`, or set QUEUE_PG_BIN")
}

fn server_user() -> Option<(u32, u32)> {
    ["postgres", "nobody"].into_iter().find_map(|name| Some((id("-u", Some(name))?, id("-g", Some(name))?)))
}

fn id(what: &str, name: Option<&str>) -> Option<u32> {
    let output = Command::new("id").arg(what).args(name).output().ok()?;
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}
