//! Starts one claimer per group of lanes, and notifies claimers when jobs are ready.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    claimer::Claimer,
    context::{ClaimContext, lock},
};
use crate::{
    lanes::{LaneGroup, LaneGroupKey, LaneState, Lanes},
    live::{ClaimerState, Loop},
};

/// All claimers of a worker.
#[derive(Default)]
pub(super) struct Claimers {
    /// Senders that publish the lane group of each claimer.
    groups: HashMap<LaneGroupKey, watch::Sender<Arc<LaneGroup>>>,
    /// Tasks of running claimers, including claimers that are stopping because their group no longer exists.
    tasks: TaskTracker,
    /// Token that is cancelled when the worker must stop claiming.
    pub(super) stop: CancellationToken,
}

impl Claimers {
    /// Starts a claimer for each new group and publishes the current version of each group. A claimer stops when its group no longer
    /// exists.
    pub(super) fn show(&mut self, context: &Arc<ClaimContext>, lanes: &Lanes) {
        self.groups.retain(|key, _| lanes.groups.get(key).is_some());
        for (key, group) in lanes.groups.iter() {
            if let Some(known) = self.groups.get(key) {
                known.send_if_modified(|before| {
                    let is_new = !Arc::ptr_eq(before, group);
                    *before = Arc::clone(group);
                    is_new
                });
            } else {
                group.inbox.set_state(ClaimerState::Resting);
                let (sender, receiver) = watch::channel(Arc::clone(group));
                self.start(Arc::clone(context), receiver, lanes.track.with_shared_floors());
                self.groups.insert(key.clone(), sender);
            }
        }
        context.notifier.set_inboxes(lanes.groups.iter().map(|(_, group)| Arc::clone(&group.inbox)).collect());
    }

    fn start(&self, context: Arc<ClaimContext>, group: watch::Receiver<Arc<LaneGroup>>, track: LaneState) {
        let (stop, mut is_again) = (self.stop.clone(), false);
        self.tasks.spawn(async move {
            let start = || {
                if std::mem::replace(&mut is_again, true) {
                    // After a panic, the claimer is notified of jobs in all its lanes. Jobs that were claimed but not passed to slots are
                    // released by housekeeping.
                    let group = group.borrow();
                    group.inbox.notify_jobs(group.lanes.iter().map(|lane| lane.id));
                }
                Claimer::new(&context, group.clone(), track.with_shared_floors()).run(stop.clone())
            };
            context.notifier.loop_health().restart(Loop::Claimer, &stop, start).await;
        });
    }

    /// Waits until all claimers have stopped, then closes the claimers' connections.
    pub(super) async fn end(&mut self, context: &ClaimContext) {
        self.tasks.close();
        self.tasks.wait().await;
        for links in [&context.claims, &context.permits] {
            let links = std::mem::take(&mut lock(links).idle);
            for link in links {
                link.close().await;
            }
        }
    }
}

/// Notifies the claimers of the lanes that hold jobs (`holding`), highest priority first. Returns whether any notified claimer was resting.
pub(super) fn notify_holding(lanes: &Lanes, holding: &[i64]) -> bool {
    let holding_lanes = |group: &Arc<LaneGroup>| group.lanes.iter().filter(|lane| lane.is_among(holding)).cloned().collect::<Vec<_>>();
    let to_notify = lanes.groups.iter().filter(|_| !holding.is_empty()).map(|(_, group)| (group, holding_lanes(group)));
    let mut to_notify: Vec<_> = to_notify.filter(|(_, holding_lanes)| !holding_lanes.is_empty()).collect();
    to_notify.sort_by_cached_key(|(_, holding_lanes)| Reverse(holding_lanes.iter().map(|lane| lane.priority).max()));
    let any = to_notify.iter().any(|(group, _)| group.inbox.state() == ClaimerState::Resting);
    for (group, holding_lanes) in to_notify {
        tracing::debug!(kind = ?group.kind, limits = ?group.under.limit_ids, lanes = holding_lanes.len(), "notifying the claimer of ready jobs");
        group.inbox.notify_jobs(holding_lanes.iter().map(|lane| lane.id));
    }
    any
}

/// Returns whether the worker has only one claimer and the claimer has few lanes. In this case, a claim costs no more than a probe.
pub(super) fn is_single(lanes: &Lanes) -> bool {
    let mut groups = lanes.groups.iter();
    groups.next().is_some_and(|(_, group)| !group.are_many()) && groups.next().is_none()
}

/// Notifies the active claimers of new jobs without a probe, because a claim that is about to return may have missed these jobs. A single
/// claimer with few lanes is notified in any state. Returns whether any notified claimer was resting.
pub(super) fn notify_without_probe(lanes: &Lanes) -> bool {
    let (is_single, mut any) = (is_single(lanes), false);
    for (_, group) in lanes.groups.iter() {
        if group.inbox.state() == ClaimerState::Active || is_single {
            any |= group.inbox.state() == ClaimerState::Resting;
            group.inbox.notify_jobs(std::iter::empty());
        }
    }
    any
}

/// Notifies all claimers. Returns whether any notified claimer was resting.
pub(super) fn notify_all(lanes: &Lanes) -> bool {
    let any = lanes.groups.any_awaits_notice();
    for (_, group) in lanes.groups.iter() {
        group.inbox.notify_jobs(std::iter::empty());
    }
    any
}
