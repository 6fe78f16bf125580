//! The claimers of a worker, one for each group of lanes: started, and told of jobs.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    claimer::Claimer,
    context::{ClaimContext, open},
};
use crate::{
    lanes::{Group, GroupKey, Lanes, Track},
    live::{ClaimerState, Loop},
};

/// The claimers of a worker, as its scout knows them.
#[derive(Default)]
pub(super) struct Claimers {
    /// What shows each of them its group.
    groups: HashMap<GroupKey, watch::Sender<Arc<Group>>>,
    /// Those of groups that are gone among them, until they have ended.
    tasks: TaskTracker,
    /// Fires when the worker is to claim no more.
    pub(super) stop: CancellationToken,
}

impl Claimers {
    /// Starts a claimer for each new group, and shows all what is known of theirs now. Those whose groups are gone end by themselves.
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
                group.hint.show(ClaimerState::Resting);
                let (sender, receiver) = watch::channel(Arc::clone(group));
                self.start(Arc::clone(context), receiver, lanes.track.beside());
                self.groups.insert(key.clone(), sender);
            }
        }
        context.bell.set_hints(lanes.groups.iter().map(|(_, group)| Arc::clone(&group.hint)).collect());
    }

    fn start(&self, context: Arc<ClaimContext>, group: watch::Receiver<Arc<Group>>, track: Track) {
        let (stop, mut is_again) = (self.stop.clone(), false);
        self.tasks.spawn(async move {
            let start = || {
                if std::mem::replace(&mut is_again, true) {
                    // All is looked for anew. What a claim brought and was not handed over is given back.
                    let group = group.borrow();
                    group.hint.tell_jobs(group.lanes.iter().map(|lane| lane.id));
                }
                Claimer::new(&context, group.clone(), track.beside()).run(stop.clone())
            };
            context.bell.vitals().restart(Loop::Claimer, &stop, start).await;
        });
    }

    /// Waits until all have ended.
    pub(super) async fn end(&mut self, context: &ClaimContext) {
        self.tasks.close();
        self.tasks.wait().await;
        for links in [&context.claims, &context.permits] {
            let links = std::mem::take(&mut open(links).idle);
            for link in links {
                link.close().await;
            }
        }
    }
}

/// Tells the claimers whose lanes are among these that they hold jobs, those of the best first; returns whether any of them waited.
pub(super) fn tell_holding(lanes: &Lanes, holding: &[i64]) -> bool {
    let hold = |group: &Arc<Group>| group.lanes.iter().filter(|lane| lane.is_among(holding)).cloned().collect::<Vec<_>>();
    let told = lanes.groups.iter().filter(|_| !holding.is_empty()).map(|(_, group)| (group, hold(group)));
    let mut told: Vec<_> = told.filter(|(_, hold)| !hold.is_empty()).collect();
    told.sort_by_cached_key(|(_, hold)| Reverse(hold.iter().map(|lane| lane.priority).max()));
    let any = told.iter().any(|(group, _)| group.hint.state() == ClaimerState::Resting);
    for (group, hold) in told {
        tracing::debug!(kind = ?group.kind, limits = ?group.under.gates, lanes = hold.len(), "jobs wait: telling the claimer");
        group.hint.tell_jobs(hold.iter().map(|lane| lane.id));
    }
    any
}

/// Whether there is one claimer, which can ask all its lanes itself: a claim costs as much as a look.
pub(super) fn is_single(lanes: &Lanes) -> bool {
    let mut groups = lanes.groups.iter();
    groups.next().is_some_and(|(_, group)| !group.are_many()) && groups.next().is_none()
}

/// Tells those that claim now, without a look: what they are about to find may be older than what has come. And a single one. Returns whether that
/// waited.
pub(super) fn tell_unasked(lanes: &Lanes) -> bool {
    let (is_single, mut any) = (is_single(lanes), false);
    for (_, group) in lanes.groups.iter() {
        if group.hint.state() == ClaimerState::Active || is_single {
            any |= group.hint.state() == ClaimerState::Resting;
            group.hint.tell_jobs(std::iter::empty());
        }
    }
    any
}

/// Tells all; returns whether any waited.
pub(super) fn tell_all(lanes: &Lanes) -> bool {
    let any = lanes.groups.any_waits();
    for (_, group) in lanes.groups.iter() {
        group.hint.tell_jobs(std::iter::empty());
    }
    any
}
