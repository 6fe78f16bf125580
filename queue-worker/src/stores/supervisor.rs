//! Starts the stores that are added to the roster, and stops the stores that are removed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use queue_core::stores::Member;
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    database::StoreDatabase,
    poller::poll_stores,
    store_entry::StoreEntry,
    store_loop::{SharedContext, StoreLoop, served_scope},
};
use crate::live::Loop;

/// Store in the roster, with the task that runs the store's loop.
struct ActiveStore {
    member: Member,
    number: u64,
    database: Arc<StoreDatabase>,
    removed: CancellationToken,
    task: JoinHandle<()>,
}

/// Delay before the retry of a store whose worker could not be created.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Interval at which the supervisor checks whether the tasks of all stores still run.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// State of all stores in the process.
struct StoreSupervisor {
    common: Arc<SharedContext>,
    databases: Vec<Arc<StoreDatabase>>,
    active: BTreeMap<String, ActiveStore>,
    /// Tasks of removed stores whose jobs are still running.
    stopping: Vec<JoinHandle<()>>,
    /// Last number assigned to a store.
    number: u64,
}

/// Supervises the stores until shutdown, and then waits until all stores have stopped.
pub(super) async fn supervise(common: Arc<SharedContext>, mut roster: watch::Receiver<Arc<[Member]>>) {
    let stop = common.stop.clone();
    let mut stores = StoreSupervisor {
        common,
        databases: Vec::new(),
        active: BTreeMap::new(),
        stopping: Vec::new(),
        number: super::database::POLLER_NUMBER,
    };
    loop {
        let members = Arc::clone(&roster.borrow_and_update());
        let all = stores.apply_roster(&members);
        let wait = if all { CHECK_INTERVAL } else { RETRY_DELAY };
        tokio::select! {
            () = stop.cancelled() => break,
            changed = timeout(wait, roster.changed()) => if let Ok(Err(_)) = changed {
                // All roster handles are dropped, so the roster can no longer change.
                stop.cancelled().await;
                break;
            },
        }
    }
    for known in stores.active.into_values() {
        let _ = known.task.await;
    }
    for stopping in stores.stopping {
        let _ = stopping.await;
    }
    for database in stores.databases {
        database.empty.cancel();
    }
}

impl StoreSupervisor {
    /// Starts the stores that were added to the roster, and stops the stores that were removed. Also restarts stores whose task has ended
    /// unexpectedly. Returns whether all of these stores were started.
    fn apply_roster(&mut self, members: &[Member]) -> bool {
        let left = |known: &ActiveStore| known.task.is_finished() || !members.iter().any(|member| member.is_same(&known.member));
        let removed: Vec<ActiveStore> = self.active.extract_if(.., |_, known| left(known)).map(|(_, known)| known).collect();
        for ActiveStore { member, number, database, removed, task } in removed {
            if task.is_finished() {
                tracing::error!(store = member.name(), "the task that supervises this store has ended unexpectedly; restarting it");
            } else {
                tracing::info!(store = member.name(), "stopping this store once its running jobs have ended");
            }
            removed.cancel();
            self.stopping.push(task);
            if database.leave(number) {
                database.empty.cancel();
                self.databases.retain(|known| !Arc::ptr_eq(known, &database));
            }
        }
        self.stopping.retain(|task| !task.is_finished());
        let mut all = true;
        for member in members {
            if !self.active.contains_key(member.name()) {
                all &= self.start_store(member);
            }
        }
        all
    }

    fn start_store(&mut self, member: &Member) -> bool {
        let (served, direct) = match served_scope(&self.common, member) {
            Ok(made) => made,
            Err(error) => {
                tracing::warn!(store = member.name(), %error, "cannot start a worker for this store; retrying");
                return false;
            }
        };
        let engine = &self.common.loops;
        let database = self.databases.iter().find(|database| database.has(member)).cloned().unwrap_or_else(|| {
            let database = Arc::new(StoreDatabase::of(member, direct));
            let (empty, polled) = (database.empty.clone(), Arc::clone(&database));
            drop(engine.supervise(Loop::Stores, move || {
                let (empty, database) = (empty.clone(), Arc::clone(&polled));
                async move { empty.run_until_cancelled(poll_stores(database)).await }
            }));
            self.databases.push(Arc::clone(&database));
            database
        });
        self.number += 1;
        let (number, removed) = (self.number, CancellationToken::new());
        let entry = Arc::new(StoreEntry::new(member.clone(), number, served));
        database.join(Arc::clone(&entry), engine);
        let store_loop = StoreLoop { common: Arc::clone(&self.common), database: Arc::clone(&database), entry, removed: removed.clone() };
        let task = engine.handle().spawn(store_loop.run());
        self.active.insert(member.name().to_owned(), ActiveStore { member: member.clone(), number, database, removed, task });
        true
    }
}
