//! Separate process that uses a server. The process runs this test binary.

use std::{
    any::Any,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use queue_worker::embedded::{Embedded, EmbeddedOptions};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tests::beyond_tier_one;

/// Body of the process that [`User::start`] starts. The process keeps the server in use until its standard input is closed.
#[test]
#[ignore = "by hand: a process that other tests start"]
fn user() {
    let folder = std::env::var("TEST_USER_FOLDER").unwrap();
    let ephemeral = std::env::var_os("TEST_USER_EPHEMERAL").is_some();
    let folder = Some(PathBuf::from(folder)).filter(|folder| !folder.as_os_str().is_empty());
    match Embedded::start(EmbeddedOptions { folder, ephemeral, durable: !ephemeral, ..EmbeddedOptions::default() }) {
        Ok(server) => {
            println!("\nSERVER\t{}\t{}", server.attached(), server.url());
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        Err(error) => println!("\nERROR\t{error}"),
    }
}

/// Path of the running test binary. The path still leads to this binary after a newer one has been built.
const OURSELVES: &str = "/proc/self/exe";

/// Arguments that make this binary run as a user of the server.
pub(super) const AS_USER: [&str; 5] = ["--exact", "embedded::user::user", "--ignored", "--nocapture", "--test-threads=1"];

/// Process that uses a server.
pub(super) struct User {
    pub(super) process: Child,
    /// Output of the process, kept open because the test harness of that process continues to print.
    _output: Box<dyn Any + Send>,
    pub(super) url: String,
    pub(super) attached: bool,
}

impl User {
    pub(super) fn start(folder: &Path) -> Self {
        Self::spawn(Self::command(folder)).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) fn command(folder: &Path) -> Command {
        let mut command = Command::new(OURSELVES);
        command.args(AS_USER).env("TEST_USER_FOLDER", folder);
        command
    }

    /// Returns a command that runs as another account. The account may lack access to the test binary and the working folder, so the
    /// command runs `copy`, made by [`copy_of_ourselves`], in the root folder.
    pub(super) fn command_as(uid: u32, copy: &Path, folder: &Path) -> Command {
        let mut command = Command::new(copy);
        command.args(AS_USER).env("TEST_USER_FOLDER", folder).uid(uid).gid(uid).current_dir("/");
        command
    }

    pub(super) fn spawn(mut command: Command) -> Result<Self, String> {
        beyond_tier_one("starts a server of its own");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.find_map(|line| line.ok().filter(|line| line.starts_with("SERVER") || line.starts_with("ERROR")));
        let line = line.unwrap_or_else(|| panic!("the user ended without a word"));
        let ["SERVER", attached, url] = line.split('\t').collect::<Vec<_>>()[..] else {
            let _ = process.wait();
            return Err(line);
        };
        Ok(Self { process, _output: Box::new(lines), url: url.to_owned(), attached: attached == "true" })
    }

    pub(super) fn leave(mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }

    pub(super) fn kill(mut self) {
        self.process.kill().unwrap();
        let _ = self.process.wait();
    }
}

/// Copies this binary to a path where every account can run it. The caller removes the copy.
pub(super) fn copy_of_ourselves() -> PathBuf {
    let copy = scratch_folder("exe");
    // Another process makes the copy. Otherwise a process started by another test could inherit the open file, and the copy could not be
    // executed ("text file busy"). The path contains this process's pid, because `OURSELVES` would name `cp` in that process.
    let ourselves = format!("/proc/{}/exe", std::process::id());
    assert!(Command::new("cp").arg(ourselves).arg(&copy).status().unwrap().success());
    copy
}

/// Returns an unused path in the system's temporary folder.
pub(super) fn scratch_folder(name: &str) -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    std::env::temp_dir().join(format!("embedded-{name}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed)))
}

/// Executes a statement. Returns the first value of its first row as text, or an empty string if the statement returns no row.
pub(super) fn try_sql(url: &str, statement: &str) -> sqlx::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = PgConnection::connect(url).await?;
        let row = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).fetch_optional(&mut connection).await?;
        row.map_or(Ok(String::new()), |row| row.try_get_unchecked(0))
    })
}

pub(super) fn sql(url: &str, statement: &str) -> String {
    try_sql(url, statement).unwrap_or_else(|error| panic!("{statement}: {error}"))
}

pub(super) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("not within a minute: {what}");
}

/// Returns all processes whose command line contains the folder. Users of the server are not returned, because they read the folder from
/// an environment variable.
pub(super) fn processes(folder: &Path) -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let named = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(folder.to_str()?).then_some((pid, line))
    });
    named.collect()
}

/// Returns the pids of the supervisor script and its watcher, the script first.
pub(super) fn scripts(folder: &Path) -> Vec<u32> {
    let mut pids: Vec<u32> = processes(folder).into_iter().filter(|(_, line)| line.contains("supervise.sh")).map(|(pid, _)| pid).collect();
    pids.sort_unstable();
    pids
}

pub(super) fn postmaster(folder: &Path) -> u32 {
    let text = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
    text.lines().next().and_then(|line| line.parse().ok()).unwrap()
}

/// Kills a process and waits until its files are closed.
pub(super) fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
    eventually("it is dead", || {
        fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|mut files| files.next().is_none())
            || !Path::new("/proc").join(pid.to_string()).exists()
    });
}

/// Waits until the server and its script have stopped on their own. Panics if the server did not stop cleanly.
pub(super) fn gone(folder: &Path) {
    eventually("the server and its script are gone", || processes(folder).is_empty());
    assert!(!folder.join("data/postmaster.pid").exists(), "it did not stop cleanly");
}

pub(super) fn remove(folder: &Path) {
    gone(folder);
    fs::remove_dir_all(folder).unwrap();
}

pub(super) fn root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}
