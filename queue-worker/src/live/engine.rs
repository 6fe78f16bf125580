//! A thread with a runtime of its own, for everything of a worker that must go on whatever its handlers do: one that blocks its thread blocks
//! every task that waits there.

use std::{io, thread, time::Duration};

use tokio::{
    runtime::{Builder, Handle},
    task::JoinHandle,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Loop, Vitals};

/// The thread; it ends, with all that was spawned on it, when this is dropped.
pub(crate) struct Engine {
    handle: Handle,
    vitals: Vitals,
    _stop: Option<DropGuard>,
}

/// How often it says that nothing holds it up, if anybody wants to know.
const TICK: Duration = Duration::from_secs(1);

impl Engine {
    /// Starts the thread; it says here how it and its loops are doing.
    pub(crate) fn start_watched(name: &str, vitals: &Vitals) -> io::Result<Self> {
        let engine = Self::start(name)?.telling(vitals);
        if cfg!(feature = "health") {
            engine.handle.spawn(tick(vitals.clone()));
        }
        Ok(engine)
    }

    /// Starts the thread.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on(stopped.cancelled()))?;
        Ok(Self { handle, vitals: Vitals::default(), _stop: Some(stop.drop_guard()) })
    }

    /// Says here how its loops are doing.
    pub(crate) fn telling(self, vitals: &Vitals) -> Self {
        Self { vitals: vitals.clone(), ..self }
    }

    /// The same thread, for loops that say here how they are doing. It ends with the first, whether or not this is there still.
    pub(crate) fn beside(&self, vitals: &Vitals) -> Self {
        Self { handle: self.handle.clone(), vitals: vitals.clone(), _stop: None }
    }

    /// For spawning on it.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Spawns a loop that goes on until the worker ends, and starts it again whenever it panics, with what `start` makes anew. Should it end sooner,
    /// that is known.
    pub(crate) fn supervise<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        which: Loop,
        start: impl FnMut() -> F + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(self.vitals.clone().supervise(which, start))
    }
}

async fn tick(vitals: Vitals) {
    loop {
        vitals.engine.set();
        tokio::time::sleep(TICK).await;
    }
}
