//! Running jobs that may have ended a process: while nothing else runs, as far as others need not wait for it.
//!
//! A step of each pass. While a suspect runs alone this worker claims nothing else, for a few seconds at a time and at most half of the time. The
//! other steps of a pass go on.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{
    context::open,
    scout::{LOOK, Scout},
};
use crate::{
    error::complain,
    lanes::{Asked, Brought, Claimed, From, Request, Share, order},
    live::bounded,
};

/// How long nothing else is claimed, from the wait for an idle process to the end of what is tried in it.
const QUIET: Duration = Duration::from_secs(3);

/// How much of that those are waited for that run already, before suspects run beside them that another crash would not convict.
const DRAIN: Duration = Duration::from_secs(2);

/// How long one that another crash would convict waits for an idle process, before it runs beside others: lest they keep it waiting for ever.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long it may take from the claim of suspects to their begin, where a rate counts their starts.
const SLACK: Duration = Duration::from_millis(50);

impl Scout {
    /// Runs jobs that may have ended a process while nothing else runs here: those that ended one only together, for it takes two more crashes to
    /// convict any of them; others one at a time, so that a crash convicts the right one. Returns whether others may be claimed meanwhile.
    pub(super) async fn try_suspects(&mut self, worker: Uuid) -> sqlx::Result<bool> {
        let now = Instant::now();
        let Some(since) = self.trial.quiet else {
            if now >= self.trial.next && self.look_for_suspects().await? {
                self.trial.quiet = Some(now);
                self.context.is_quiet.store(true, SeqCst);
            }
            return Ok(!self.trial.is_quiet());
        };
        // A crash would charge those whose verdict is not written.
        let (is_idle, quiet) = (self.context.held.count() == 0, now - since);
        if quiet < QUIET && !is_idle && (quiet < DRAIN || self.trial.any_run()) {
            return Ok(false);
        }
        // Never some beside earlier ones, or the longer ones would be charged with the others' crashes.
        if quiet >= QUIET || self.trial.any_run() || !self.begin_suspects(worker, is_idle).await? {
            self.trial.give_way(LOOK);
            self.context.is_quiet.store(false, SeqCst);
            self.context.bell.nudge_claimers();
        }
        Ok(!self.trial.is_quiet())
    }

    /// Whether there are some to be tried, now that none of the last ones runs.
    async fn look_for_suspects(&mut self) -> sqlx::Result<bool> {
        let solo: Vec<i64> = self.lanes.suspects().map(|lane| lane.id).collect();
        if solo.is_empty() {
            // Those that waited may be paused now.
            self.trial.waiting = None;
            return Ok(false);
        }
        self.trial.next = Instant::now() + LOOK;
        if self.waiting_suspects(&solo, &vec![1; solo.len()]).await?.is_empty() {
            self.trial.waiting = None;
            return Ok(false);
        }
        self.trial.waiting.get_or_insert_with(Instant::now);
        Ok(!self.trial.any_run())
    }

    /// Claims the next ones and begins them; returns whether any were. Those that must be tried alone wait for an idle process with patience.
    async fn begin_suspects(&mut self, worker: Uuid, is_idle: bool) -> sqlx::Result<bool> {
        let (mut shares, alone) = self.next_suspects().await?;
        // Those of other limits, or of none, wait for the next time.
        let first = shares.first().map_or(0, |share| share.lane);
        let gates = |lane| self.lanes.groups.of(lane).map(|group| Arc::clone(&group.under.gates));
        shares.retain(|share| gates(share.lane) == gates(first));
        let is_patient = self.trial.waiting.is_some_and(|since| since.elapsed() < PATIENCE);
        if shares.is_empty() || (alone && !is_idle && is_patient) {
            return Ok(false);
        }
        let most = shares.iter().map(|share| share.most).sum();
        let request = Request::new(worker, shares, most, From::Lanes { from_zero: true }, &mut self.lanes.track, &self.context.held);
        let Brought { jobs: claimed, unread, .. } = self.claim_suspects(request, first).await?;
        for job in &unread {
            if let Some(slots) = self.lanes.track.get(job.job.lane).and_then(|lane| self.context.queues.slots(&lane.queue)) {
                slots.give_back(job).await;
            }
        }
        if claimed.is_empty() || self.context.worker() != Some(worker) {
            return Ok(false);
        }
        // What stood first may have been passed over: then the next is one that must be tried alone.
        if is_patient && !is_idle && claimed.iter().any(|job| job.job.crashes > 1) {
            for job in &claimed {
                if let Some(slots) = self.lanes.track.get(job.job.lane).and_then(|lane| self.context.queues.slots(&lane.queue)) {
                    slots.give_back(job).await;
                }
            }
            return Ok(false);
        }
        self.trial.waiting = Some(Instant::now());
        self.trial.turn = self.trial.turn.wrapping_add(1);
        self.begin(claimed).await;
        Ok(true)
    }

    /// Claims them, and waits for the claim: nothing else is begun meanwhile.
    async fn claim_suspects(&mut self, request: Request, lane: i64) -> sqlx::Result<Brought> {
        let Some(group) = self.lanes.groups.of(lane) else {
            return request.send(&mut self.link, self.context.store).await.read(&mut self.lanes.track);
        };
        let (gates, keyed, told) = (Arc::clone(&group.under.gates), group.under.keyed, Arc::clone(&self.context.bell));
        let request = request.under(Asked { gates, keyed, freed: Vec::new(), told, slack: SLACK, floors: None });
        let mut link = open(&self.context.permits).take();
        let answer = request.send(&mut link, self.context.store).await;
        open(&self.context.permits).push(link);
        Ok(answer.read(&mut self.lanes.track).unwrap_or_else(|error| {
            complain(&error, "a claim under limits failed; what they cover waits, and nothing else does");
            Brought::default()
        }))
    }

    /// The solo lanes to claim from now, for which slots are free: as many as may be tried together, or one job of any, which is to be alone.
    async fn next_suspects(&mut self) -> sqlx::Result<(Vec<Share>, bool)> {
        let solo = order(self.lanes.suspects(), self.trial.turn);
        let queues: HashMap<i64, Arc<str>> = solo.iter().map(|lane| (lane.id, lane.queue.clone())).collect();
        let mut free: HashMap<&str, usize> = HashMap::new();
        for queue in queues.values() {
            free.insert(queue, self.context.queues.slots(queue).map_or(0, |slots| slots.free().min(self.context.batch)));
        }
        let lanes: Vec<i64> = solo.into_iter().map(|lane| lane.id).filter(|lane| free[&*queues[lane]] > 0).collect();
        let most: Vec<i64> = lanes.iter().map(|lane| free[&*queues[lane]] as i64).collect();
        let found = self.waiting_suspects(&lanes, &most).await?;
        let mut shares = Vec::new();
        for lane in &lanes {
            // Lanes of one queue share its free slots.
            let Some(free) = free.get_mut(&*queues[lane]) else { continue };
            let most = found.get(lane).map_or(0, |together| usize::try_from(*together).unwrap_or(0)).min(*free);
            *free -= most;
            if most > 0 {
                shares.push(Share { lane: *lane, most });
            }
        }
        if !shares.is_empty() {
            return Ok((shares, false));
        }
        let alone = lanes.iter().find(|lane| found.contains_key(lane)).map(|lane| Share { lane: *lane, most: 1 });
        Ok((alone.into_iter().collect(), true))
    }

    /// Which of these solo lanes hold jobs, and how many of each may be tried together.
    async fn waiting_suspects(&mut self, lanes: &[i64], most: &[i64]) -> sqlx::Result<HashMap<i64, i64>> {
        let statement = sqlx::query_as(self.context.store.sql(include_str!("../../sql/suspects.sql"))).bind(lanes).bind(most);
        let found = bounded(statement.fetch_all(self.link.get().await?)).await;
        let mut found: HashMap<i64, i64> = self.link.note(found)?.into_iter().collect();
        // Nothing is kept from running for those whose keys have no room.
        for lane in found.keys().copied().collect::<Vec<_>>() {
            let Some(group) = self.lanes.groups.of(lane).filter(|group| group.under.keyed).cloned() else { continue };
            let statement = sqlx::query_scalar(self.context.store.sql(include_str!("../../sql/suspects_by_key.sql")));
            let has_room = bounded(statement.bind(lane).bind(&group.under.gates[..]).fetch_one(self.link.get().await?)).await;
            if !self.link.note(has_room)? {
                found.remove(&lane);
            }
        }
        Ok(found)
    }

    /// Hands suspects to their slots. Should others have taken the head of the row meanwhile, what they left may be what must be tried alone: one is
    /// begun then, and the others go back.
    async fn begin(&mut self, claimed: Vec<Claimed>) {
        let alone = claimed.iter().any(|job| job.job.crashes > 1);
        self.trial.running.clear();
        for (nth, job) in claimed.into_iter().enumerate() {
            let Some(slots) = self.lanes.track.get(job.job.lane).and_then(|lane| self.context.queues.slots(&lane.queue)) else { continue };
            if alone && nth > 0 {
                slots.give_back(&job).await;
            } else {
                self.trial.running.push((Arc::clone(&slots), job.job.id));
                slots.push(vec![job]);
            }
        }
    }
}
