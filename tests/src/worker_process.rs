//! A worker in a process of its own, to be stopped, continued and killed.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Instant,
};

use crate::server::lock;

/// A running `test-worker`; killed when dropped.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    log: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl WorkerProcess {
    /// Starts `binary` (`env!("CARGO_BIN_EXE_test-worker")`) on a database, with further environment such as `("TTL_MS", "2000")`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(binary: impl AsRef<Path>, url: &str, settings: &[(&str, &str)]) -> Self {
        Self::running(binary, url, &[], settings)
    }

    /// As [`WorkerProcess::start`]; what it logs, warnings and worse, is kept.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn logged(binary: impl AsRef<Path>, url: &str, settings: &[(&str, &str)]) -> Self {
        let settings = [&[("QUEUE_LOG", "warn"), ("NO_COLOR", "1")], settings].concat();
        Self::running(binary, url, &[], &settings)
    }

    /// As [`WorkerProcess::logged`], with arguments, and with all that it logs.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn running(binary: impl AsRef<Path>, url: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        let mut child = spawn(binary.as_ref(), url, arguments, settings);
        let log: Arc<Mutex<Vec<(Instant, String)>>> = Arc::default();
        if let Some(stderr) = child.stderr.take() {
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    lock(&log).push((Instant::now(), line));
                }
            });
        }
        Self { child, log }
    }

    /// What it has logged since then, line by line.
    pub fn log_since(&self, since: Instant) -> Vec<String> {
        lock(&self.log).iter().filter(|(at, _)| *at >= since).map(|(_, line)| line.clone()).collect()
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by name (`KILL`, `STOP`, `CONT`, `TERM`).
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send SIG{name} to a worker process");
    }

    /// Waits for its end; returns its exit code, `None` when a signal ended it.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap_or_else(|error| panic!("cannot wait for a worker process: {error}")).code()
    }

    /// Whether it has ended.
    ///
    /// # Panics
    /// When that cannot be found out.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap_or_else(|error| panic!("cannot ask for a worker process: {error}")).is_some()
    }

    /// Ends it with SIGKILL, and returns once it has ended.
    pub fn kill(mut self) {
        self.signal("KILL");
        self.wait();
    }
}

/// Of a test that fails, the last lines of its log are shown.
impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = lock(&self.log);
            for (_, line) in &log[log.len().saturating_sub(40)..] {
                eprintln!("worker {}: {line}", self.child.id());
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(binary: &Path, url: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Child {
    Command::new(binary)
        .args(arguments)
        .env("DATABASE_URL", url)
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start a worker process: {error}"))
}
