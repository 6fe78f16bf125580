//! Live updates of pages. A single database poll serves all viewers of a page. Pages without viewers are not polled.

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

use super::problem::{HandlerResult, Problem};

/// Maximum number of concurrent viewers of live pages. Further viewers must reload the page to see changes.
pub(super) const MAX_VIEWERS: usize = 32;

/// Pause between two polls for the same page.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum duration of a poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(30);

/// Page that is updated live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LiveTopic {
    Overview,
    Job(JobId),
}

/// Polls the watched pages and publishes the results to their viewers.
pub(super) struct LiveHub<T> {
    topics: Mutex<HashMap<LiveTopic, watch::Sender<Option<Arc<T>>>>>,
    viewers: Arc<Semaphore>,
}

/// Subscription of one viewer. Dropping the subscription releases the viewer's permit.
pub(super) struct LiveSubscription<T> {
    results: watch::Receiver<Option<Arc<T>>>,
    is_new: bool,
    _permit: OwnedSemaphorePermit,
}

impl<T> LiveHub<T> {
    /// Creates a hub. The hubs of several stores may share the `viewers` permits, which limit the number of viewers.
    pub(super) fn new(viewers: Arc<Semaphore>) -> Self {
        Self { topics: Mutex::default(), viewers }
    }
}

impl<T: Send + Sync + 'static> LiveHub<T> {
    /// Subscribes to a topic. Starts polling with `poll` if the topic has no viewers yet. Polling stops when the last viewer leaves.
    pub(super) fn watch<F>(
        hub: &Arc<Self>,
        topic: LiveTopic,
        mut poll: impl FnMut() -> F + Send + 'static,
    ) -> HandlerResult<LiveSubscription<T>>
    where
        F: Future<Output = Option<T>> + Send,
    {
        let full = || Problem::unavailable("too many viewers of live pages; reload the page instead");
        let permit = hub.viewers.clone().try_acquire_owned().map_err(|_| full())?;
        let mut topics = hub.topics.lock().unwrap_or_else(PoisonError::into_inner);
        let results = match topics.entry(topic) {
            Entry::Occupied(known) => known.get().subscribe(),
            Entry::Vacant(free) => {
                let (sender, results) = watch::channel(None);
                free.insert(sender);
                let hub = hub.clone();
                tokio::spawn(async move {
                    while hub.has_viewers(topic) {
                        // If a poll panics or times out, the previous result stays published. The panic hook logs the panic.
                        let result = timeout(POLL_TIMEOUT, AssertUnwindSafe(async { poll().await }).catch_unwind()).await;
                        hub.publish(topic, result.ok().and_then(Result::ok).flatten());
                        sleep(POLL_INTERVAL).await;
                    }
                });
                results
            }
        };
        Ok(LiveSubscription { results, is_new: true, _permit: permit })
    }

    /// Returns whether the topic has viewers, and removes a topic without viewers. A new viewer subscribes under the same lock. The topic
    /// of a new viewer is therefore never removed.
    fn has_viewers(&self, topic: LiveTopic) -> bool {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        let has_viewers = topics.get(&topic).is_some_and(|sender| sender.receiver_count() > 0);
        if !has_viewers {
            topics.remove(&topic);
        }
        has_viewers
    }

    /// Publishes the result of a poll to the viewers. If the poll failed (`found` is `None`), the previous result stays published.
    fn publish(&self, topic: LiveTopic, found: Option<T>) {
        let topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(sender), Some(found)) = (topics.get(&topic), found) {
            sender.send_replace(Some(Arc::new(found)));
        }
    }
}

impl<T> LiveSubscription<T> {
    /// Returns the latest result. The first call waits only if there is no result yet, and later calls wait for a new result. Returns
    /// `None` after polling has stopped. A new subscription then restarts polling.
    pub(super) async fn next(&mut self) -> Option<Arc<T>> {
        if !std::mem::take(&mut self.is_new) {
            self.results.changed().await.ok()?;
        }
        loop {
            if let Some(results) = self.results.borrow_and_update().clone() {
                return Some(results);
            }
            self.results.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    #[tokio::test]
    async fn polling_continues_after_a_panic() {
        let (hub, polls) = (Arc::new(LiveHub::new(Arc::new(Semaphore::new(MAX_VIEWERS)))), Arc::new(AtomicU32::new(0)));
        let counted = Arc::clone(&polls);
        let poll = move || {
            let number = counted.fetch_add(1, Relaxed);
            async move {
                assert_ne!(number, 0, "the first poll fails");
                Some(number)
            }
        };
        let mut watching = LiveHub::watch(&hub, LiveTopic::Overview, poll).unwrap_or_else(|problem| panic!("{problem:?}"));
        assert_eq!(watching.next().await.as_deref(), Some(&1));
        // A second viewer receives the results of the first viewer's polls.
        let mut other = LiveHub::watch(&hub, LiveTopic::Overview, || async { None }).unwrap_or_else(|problem| panic!("{problem:?}"));
        assert!(other.next().await.is_some_and(|results| *results >= 1));
    }
}
