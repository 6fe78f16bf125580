//! What changes by itself: one look at the database for all who watch the same page, and none while nobody does.

use std::{
    collections::{HashMap, hash_map::Entry},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::FutureExt as _;
use queue_core::JobId;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{sleep, timeout},
};

use super::problem::{Answer, Problem};

/// So many watch at a time; others read the page anew by hand.
pub(super) const VIEWERS: usize = 32;

/// It is looked so often.
const EVERY: Duration = Duration::from_secs(2);

/// A look that takes longer is given up.
const LONGEST: Duration = Duration::from_secs(30);

/// What can be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    Overview,
    Job(JobId),
}

/// Who watches what.
pub(super) struct Hub<T> {
    topics: Mutex<HashMap<Topic, watch::Sender<Option<Arc<T>>>>>,
    viewers: Arc<Semaphore>,
}

/// One who watches; the place is free again when this is dropped.
pub(super) struct Watching<T> {
    seen: watch::Receiver<Option<Arc<T>>>,
    is_new: bool,
    _place: OwnedSemaphorePermit,
}

impl<T> Hub<T> {
    /// With room for those that these have places for, who may watch elsewhere as well.
    pub(super) fn new(viewers: Arc<Semaphore>) -> Self {
        Self { topics: Mutex::default(), viewers }
    }
}

impl<T: Send + Sync + 'static> Hub<T> {
    /// Watches, and begins to look if nobody watches this yet: `look` is called until nobody does.
    pub(super) fn watch<F>(hub: &Arc<Self>, topic: Topic, mut look: impl FnMut() -> F + Send + 'static) -> Answer<Watching<T>>
    where
        F: Future<Output = Option<T>> + Send,
    {
        let full = || Problem::busy("as many watch as can; read the page anew instead");
        let place = hub.viewers.clone().try_acquire_owned().map_err(|_| full())?;
        let mut topics = hub.topics.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = match topics.entry(topic) {
            Entry::Occupied(known) => known.get().subscribe(),
            Entry::Vacant(free) => {
                let (sender, seen) = watch::channel(None);
                free.insert(sender);
                let hub = hub.clone();
                tokio::spawn(async move {
                    while hub.is_watched(topic) {
                        // One that panics is told by the panic's message; the next may see something, also after one that takes too long.
                        let looked = timeout(LONGEST, AssertUnwindSafe(async { look().await }).catch_unwind()).await;
                        hub.tell(topic, looked.ok().and_then(Result::ok).flatten());
                        sleep(EVERY).await;
                    }
                });
                seen
            }
        };
        Ok(Watching { seen, is_new: true, _place: place })
    }

    /// Forgets a topic that nobody watches, under the lock under which one begins to.
    fn is_watched(&self, topic: Topic) -> bool {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        let is_watched = topics.get(&topic).is_some_and(|sender| sender.receiver_count() > 0);
        if !is_watched {
            topics.remove(&topic);
        }
        is_watched
    }

    /// Of a look that failed nothing is told: what was seen last stands.
    fn tell(&self, topic: Topic, found: Option<T>) {
        let topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(sender), Some(found)) = (topics.get(&topic), found) {
            sender.send_replace(Some(Arc::new(found)));
        }
    }
}

impl<T> Watching<T> {
    /// What was seen last, and then what is seen next; `None` once nobody looks any more: whoever asks anew begins to look again.
    pub(super) async fn next(&mut self) -> Option<Arc<T>> {
        if !std::mem::take(&mut self.is_new) {
            self.seen.changed().await.ok()?;
        }
        loop {
            if let Some(seen) = self.seen.borrow_and_update().clone() {
                return Some(seen);
            }
            self.seen.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    #[tokio::test]
    async fn a_look_that_panics_is_followed_by_the_next() {
        let (hub, looks) = (Arc::new(Hub::new(Arc::new(Semaphore::new(VIEWERS)))), Arc::new(AtomicU32::new(0)));
        let counted = Arc::clone(&looks);
        let look = move || {
            let number = counted.fetch_add(1, Relaxed);
            async move {
                assert_ne!(number, 0, "the first look fails");
                Some(number)
            }
        };
        let mut watching = Hub::watch(&hub, Topic::Overview, look).unwrap_or_else(|problem| panic!("{problem:?}"));
        assert_eq!(watching.next().await.as_deref(), Some(&1));
        // Another who comes later is told by the same looks.
        let mut other = Hub::watch(&hub, Topic::Overview, || async { None }).unwrap_or_else(|problem| panic!("{problem:?}"));
        assert!(other.next().await.is_some_and(|seen| *seen >= 1));
    }
}
