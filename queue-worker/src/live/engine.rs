//! Dedicated thread and runtime for the worker's tasks that must not be delayed by handlers. A handler that blocks a thread also blocks
//! all other tasks on the thread.

use std::{io, thread, time::Duration};

use tokio::{
    runtime::{Builder, Handle},
    task::JoinHandle,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Loop, LoopHealth};

/// Handle to the thread that runs a worker's loops. The thread and all tasks on the thread end when the handle is dropped.
pub(crate) struct Engine {
    handle: Handle,
    loop_health: LoopHealth,
    _stop: Option<DropGuard>,
}

/// Interval at which the thread sets its time mark. Health checks report the thread as blocked if the mark is old.
const TICK: Duration = Duration::from_secs(1);

impl Engine {
    /// Starts the thread. The thread and its loops report to `loop_health`.
    pub(crate) fn start_watched(name: &str, loop_health: &LoopHealth) -> io::Result<Self> {
        let engine = Self::start(name)?.with_health(loop_health);
        if cfg!(feature = "health") {
            engine.handle.spawn(tick(loop_health.clone()));
        }
        Ok(engine)
    }

    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on(stopped.cancelled()))?;
        Ok(Self { handle, loop_health: LoopHealth::default(), _stop: Some(stop.drop_guard()) })
    }

    /// Sets the health record to which the thread's loops report.
    pub(crate) fn with_health(self, loop_health: &LoopHealth) -> Self {
        Self { loop_health: loop_health.clone(), ..self }
    }

    /// Returns a handle to the same thread for loops with another health record. The thread ends when the original handle is dropped.
    pub(crate) fn beside(&self, loop_health: &LoopHealth) -> Self {
        Self { handle: self.handle.clone(), loop_health: loop_health.clone(), _stop: None }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Spawns a loop that runs until the worker stops. After a panic, the loop is restarted with a new future from `start`. An unexpected
    /// end is recorded in the health record.
    pub(crate) fn supervise<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        which: Loop,
        start: impl FnMut() -> F + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(self.loop_health.clone().supervise(which, start))
    }
}

async fn tick(loop_health: LoopHealth) {
    loop {
        loop_health.engine.set();
        tokio::time::sleep(TICK).await;
    }
}
