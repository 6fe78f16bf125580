//! A thread with a runtime of its own, for everything of a worker that must go on whatever its handlers do: one that blocks its thread blocks
//! every task that waits there.

use std::{io, thread};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The thread; it ends, with all that was spawned on it, when this is dropped.
pub(crate) struct Engine {
    handle: Handle,
    _stop: DropGuard,
}

impl Engine {
    /// Starts the thread.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on(stopped.cancelled()))?;
        Ok(Self { handle, _stop: stop.drop_guard() })
    }

    /// For spawning on it.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}
