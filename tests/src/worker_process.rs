//! Worker process that tests can stop, continue and kill.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Instant,
};

use crate::server::lock;

/// Running worker process, killed when dropped.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    log: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl WorkerProcess {
    /// Starts `binary`, such as `env!("CARGO_BIN_EXE_test-worker")`, on a database. `settings` contains additional environment variables,
    /// such as `("TTL_MS", "2000")`.
    ///
    /// # Panics
    /// Panics if the process cannot be started.
    pub fn start(binary: impl AsRef<Path>, url: &str, settings: &[(&str, &str)]) -> Self {
        Self::start_with(binary, url, &[], settings)
    }

    /// Starts a process like [`WorkerProcess::start`], with the log level `warn`.
    ///
    /// # Panics
    /// Panics if the process cannot be started.
    pub fn start_logged(binary: impl AsRef<Path>, url: &str, settings: &[(&str, &str)]) -> Self {
        let settings = [&[("QUEUE_LOG", "warn"), ("NO_COLOR", "1")], settings].concat();
        Self::start_with(binary, url, &[], &settings)
    }

    /// Starts a process like [`WorkerProcess::start`], with command-line arguments.
    ///
    /// # Panics
    /// Panics if the process cannot be started.
    pub fn start_with(binary: impl AsRef<Path>, url: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Self {
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

    /// Returns the lines logged since `since`.
    pub fn log_since(&self, since: Instant) -> Vec<String> {
        lock(&self.log).iter().filter(|(at, _)| *at >= since).map(|(_, line)| line.clone()).collect()
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process by name, such as `KILL`, `STOP`, `CONT` or `TERM`.
    ///
    /// # Panics
    /// Panics if the signal cannot be sent.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send SIG{name} to a worker process");
    }

    /// Waits until the process has ended. Returns the exit code, or `None` if a signal ended the process.
    ///
    /// # Panics
    /// Panics if the wait fails.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap_or_else(|error| panic!("cannot wait for a worker process: {error}")).code()
    }

    /// Returns whether the process has ended.
    ///
    /// # Panics
    /// Panics if the status of the process cannot be read.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap_or_else(|error| panic!("cannot ask for a worker process: {error}")).is_some()
    }

    /// Kills the process with SIGKILL and waits until it has ended.
    pub fn kill(mut self) {
        self.signal("KILL");
        self.wait();
    }
}

/// Kills the process. If the test fails, prints the last lines of the process's log first.
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
