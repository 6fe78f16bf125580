//! A worker in a process of its own, to be stopped, continued and killed.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

/// A running `test-worker`; killed when dropped.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
}

impl WorkerProcess {
    /// Starts `binary` (`env!("CARGO_BIN_EXE_test-worker")`) on a database, with further environment such as `("TTL_MS", "2000")`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(binary: impl AsRef<Path>, url: &str, settings: &[(&str, &str)]) -> Self {
        let child = Command::new(binary.as_ref())
            .env("DATABASE_URL", url)
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start a worker process: {error}"));
        Self { child }
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

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
