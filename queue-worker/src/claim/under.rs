//! The claimers of lanes under limits: one for each group, started and told of jobs by the claim loop.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{claimer::Claimer, context::ClaimContext};
use crate::{
    lanes::{Group, GroupKey, Lanes, Rescan},
    live::{ClaimerState, Link, bounded},
};

/// The claimers of lanes under limits.
#[derive(Default)]
pub(super) struct Claimers {
    all: HashMap<GroupKey, RunningClaimer>,
    stop: CancellationToken,
    /// Below the floors of their lanes.
    rescan: Rescan,
    looked: Option<Instant>,
    /// Some were told of jobs since the last time that any had brought some.
    has_told: bool,
}

struct RunningClaimer {
    group: watch::Sender<Arc<Group>>,
    task: JoinHandle<()>,
}

/// While claims are full their lanes are looked at this often.
const OFTEN: Duration = Duration::from_millis(5);

impl Claimers {
    /// Starts a claimer for each new group, and tells all what is known of theirs now. Those whose groups are gone end by themselves.
    pub(super) fn tell(&mut self, context: &Arc<ClaimContext>, lanes: &Lanes) {
        self.all.retain(|key, _| lanes.groups.get(key).is_some());
        for (key, group) in lanes.groups.iter() {
            if let Some(known) = self.all.get(key).filter(|known| !known.task.is_finished()) {
                known.group.send_if_modified(|before| {
                    let is_new = !Arc::ptr_eq(before, group);
                    *before = Arc::clone(group);
                    is_new
                });
                continue;
            }
            let (sender, receiver) = watch::channel(Arc::clone(group));
            group.hint.show(ClaimerState::Active);
            let claimer = Claimer::new(context, receiver, lanes.track.beside());
            let task = tokio::spawn(claimer.run(self.stop.clone()));
            self.all.insert(key.clone(), RunningClaimer { group: sender, task });
        }
        context.bell.set_hints(lanes.groups.iter().map(|(_, group)| Arc::clone(&group.hint)).collect());
    }

    /// Sees to it that each group has its claimer; returns how many jobs they have brought since they were told of some. Those that go on by themselves
    /// are no reason to look for jobs more often.
    pub(super) fn mind(&mut self, context: &Arc<ClaimContext>, lanes: &Lanes) -> usize {
        if self.all.values().any(|known| known.task.is_finished()) {
            tracing::error!("a claimer of jobs under limits panicked; it starts again");
            self.tell(context, lanes);
        }
        let taken = context.taken.swap(0, Relaxed);
        if taken > 0 && std::mem::take(&mut self.has_told) { taken } else { 0 }
    }

    /// Tells those that wait for jobs whose lanes hold some; of many lanes all of them, who ask for themselves. In a hurry also those that claim now: what
    /// they are about to find may be older than this.
    pub(super) async fn look(&mut self, link: &mut Link, context: &ClaimContext, lanes: &Lanes, hurry: bool) -> sqlx::Result<()> {
        let now = Instant::now();
        if lanes.groups.are_none() || (!hurry && self.looked.is_some_and(|at| now < at + OFTEN)) {
            return Ok(());
        }
        self.looked = Some(now);
        let from_zero = self.rescan.may(now) && (hurry || self.rescan.owed || self.rescan.is_due());
        let (asked, floors) = lanes.waited_for(from_zero);
        for (_, group) in lanes.groups.iter().filter(|(_, group)| hurry && group.hint.state() == ClaimerState::Active) {
            group.hint.tell_jobs();
        }
        if asked.is_empty() {
            self.rescan.end();
            return Ok(());
        }
        let found = if lanes.are_many() { asked } else { self.ask(link, context, (asked, floors), from_zero).await? };
        for (_, group) in lanes.groups.iter().filter(|(_, group)| group.lanes.iter().any(|lane| lane.is_among(&found))) {
            group.hint.tell_jobs();
            self.has_told = true;
        }
        Ok(())
    }

    /// Which of these lanes hold jobs, from these places on.
    async fn ask(
        &mut self,
        link: &mut Link,
        context: &ClaimContext,
        (lanes, floors): (Vec<i64>, Vec<i64>),
        from_zero: bool,
    ) -> sqlx::Result<Vec<i64>> {
        let began = Instant::now();
        if from_zero {
            self.rescan.begin();
        }
        let statement = sqlx::query_scalar(context.store.sql(include_str!("../../sql/holding.sql"))).bind(lanes).bind(floors);
        let found = bounded(statement.fetch_all(link.get().await?)).await;
        let found = link.note(found)?;
        if from_zero {
            self.rescan.done(began.elapsed(), 0);
        } else {
            self.rescan.owed = true;
        }
        Ok(found)
    }

    /// When to look below the floors of their lanes, if that is owed.
    pub(super) fn owed_at(&self) -> Option<Instant> {
        self.rescan.owed_at()
    }

    /// Waits until all have ended.
    pub(super) async fn end(&mut self, context: &ClaimContext) {
        self.stop.cancel();
        for (_, known) in self.all.drain() {
            // A claimer that panicked has said so.
            let _ = known.task.await;
        }
        let links = std::mem::take(&mut context.links().idle);
        for link in links {
            link.close().await;
        }
    }
}
