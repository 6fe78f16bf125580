//! When a claimer claims next. Does not touch the database.

use std::time::{Duration, Instant};

use super::round::Round;
use crate::{
    lanes::Room,
    live::{ClaimerState, Told},
};

/// When a claimer claims next, and what its claims have shown.
pub(super) struct Pacing {
    next: Next,
    /// How long lanes that were empty are not asked again.
    pause: Duration,
    /// The last claim brought all that it asked for.
    is_full: bool,
    /// It was told of jobs since its last claim.
    has_hint: bool,
    /// It was told of room since its last claim was sent.
    has_room: bool,
    /// How often in a row no permit was left when its time had come.
    misses: u32,
    /// How far it has looked past keys that have no room.
    round: Round,
    /// How long it may take from a claim to the beginning of its jobs, as it has shown: a rate counts them until then.
    slack: Duration,
}

/// When to claim next.
#[derive(Clone, Copy)]
enum Next {
    /// Now: there may be more.
    Now,
    /// Once it is told of jobs, but not before this: all there was has been taken.
    Rest(Instant),
    /// Not before this, unless it is told of room.
    Shut(Instant),
    /// Not before this, whatever it is told: the last claim failed, or a handler was told to slow down.
    Broken(Instant),
    /// Of the keys that wait none has room, but others may come: once it is told of jobs, but not before the first, and at the second anyway.
    Keys(Instant, Instant),
}

/// A gate is tried again after this, whether or not anybody says that there is room.
pub(super) const SHUT: Duration = Duration::from_secs(1);

/// Where not all workers know a limit yet, they are about to.
const SOON: Duration = Duration::from_millis(50);

/// Under limits, lanes that were empty are not asked again before this.
const PAUSE: Duration = Duration::from_millis(5);

/// A claim that took long makes the next ones' starts count no later than this; jobs that come too late all the same, no later than that.
const LONG: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_hours(1);

impl Pacing {
    pub(super) fn new(is_limited: bool) -> Self {
        Self {
            next: Next::Rest(Instant::now()),
            pause: if is_limited { PAUSE } else { Duration::ZERO },
            is_full: false,
            has_hint: false,
            has_room: false,
            misses: 0,
            round: Round::default(),
            slack: Duration::ZERO,
        }
    }

    /// Whether the last claim brought all that it asked for.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// How long it may take from the next claim to the beginning of its jobs.
    pub(super) fn slack(&self) -> Duration {
        self.slack
    }

    /// Takes note of what it was told.
    pub(super) fn hear(&mut self, told: &Told) {
        self.has_hint |= told.jobs;
        if told.room {
            self.has_room = true;
            if matches!(self.next, Next::Shut(_) | Next::Keys(..)) {
                self.next = Next::Now;
            }
        }
        if told.late {
            self.note_late();
        }
    }

    /// When to claim, if at any time: also for what may lie below the floors of its lanes, if that is owed.
    pub(super) fn due(&self, now: Instant, owed_at: Option<Instant>) -> Option<Instant> {
        match self.next {
            Next::Now => Some(now),
            Next::Rest(at) => self.has_hint.then_some(at).into_iter().chain(owed_at).min(),
            Next::Shut(at) | Next::Broken(at) => Some(at),
            Next::Keys(look, at) => Some(if self.has_hint { look.min(at) } else { at }),
        }
    }

    /// Whether not even what has ended is to be told before the time.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self.next, Next::Broken(at) if Instant::now() < at)
    }

    /// What the claimer is doing, as far as others need to know.
    pub(super) fn state(&self, now: Instant, owed_at: Option<Instant>) -> ClaimerState {
        match self.next {
            Next::Rest(_) if self.has_hint || owed_at.is_some_and(|at| now >= at) => ClaimerState::Active,
            Next::Rest(_) => ClaimerState::Resting,
            Next::Now => ClaimerState::Active,
            // Its claim is on its way.
            Next::Shut(at) | Next::Broken(at) if at <= now => ClaimerState::Active,
            Next::Shut(_) | Next::Broken(_) => ClaimerState::Shut,
            Next::Keys(..) => ClaimerState::ShutByKey,
        }
    }

    /// Whether it waits to be told of jobs.
    pub(super) fn rests(&self) -> bool {
        matches!(self.next, Next::Rest(_)) && !self.has_hint
    }

    /// All it knows of its limits may be otherwise now. If it rests, it goes on until it is told of jobs.
    pub(super) fn reopen(&mut self) {
        if !matches!(self.next, Next::Rest(_)) {
            self.next = Next::Now;
        }
        (self.misses, self.has_room, self.round) = (0, true, Round::default());
    }

    /// There is no lane of which a claim could bring anything.
    pub(super) fn rest(&mut self) {
        (self.next, self.has_hint) = (Next::Rest(Instant::now() + self.pause), false);
    }

    /// There may be more, for which it waits for slots.
    pub(super) fn go_on(&mut self) {
        self.next = Next::Now;
    }

    /// Nothing is claimed before this.
    pub(super) fn break_until(&mut self, at: Instant) {
        self.next = Next::Broken(at.min(Instant::now() + SHUT));
    }

    /// A claim is sent.
    pub(super) fn sent(&mut self) {
        (self.has_room, self.has_hint) = (false, false);
    }

    /// Jobs under a rate have landed this long after their claim.
    pub(super) fn note_spent(&mut self, spent: Duration) {
        self.slack = (spent * 4).min(LONG).max(self.slack.mul_f64(0.75));
    }

    /// Some came too late to begin: from now on there is more time, or else none might ever begin.
    fn note_late(&mut self) {
        self.slack = (self.slack * 2).clamp(PAUSE, LONGEST);
        if self.slack > LONG {
            tracing::warn!(
                seconds = self.slack.as_secs_f64(),
                "jobs under a rate begin long after their claim, so that fewer do; is the worker's middleware slow, or the disk?"
            );
        }
    }

    /// A claim has brought this many jobs of those that it asked for.
    pub(super) fn note(&mut self, room: Room, (count, most): (usize, usize), took: Duration) {
        let now = Instant::now();
        self.is_full = count >= most;
        self.misses = if count > 0 { 0 } else { self.misses.saturating_add(1) };
        if count > 0 {
            self.round.found();
        }
        // No more than a twentieth of the time goes into looking past keys that have no room.
        let look = now + PAUSE.max(20 * took);
        self.next = match room {
            // Since this one was sent: it may have come too early for that.
            Room::Full | Room::Keys(_) if self.has_room => Next::Now,
            Room::Keys(wait) => Next::Keys(look, now + wait.unwrap_or(SHUT).min(SHUT)),
            Room::More(_) if count > 0 => Next::Now,
            Room::More(part) => self.round.in_vain(part, took, now, SHUT).map_or(Next::Now, |at| Next::Keys(look, at)),
            Room::Open if count >= most && most > 0 => Next::Now,
            Room::Open => Next::Rest(now + self.pause),
            Room::Full | Room::Gone => Next::Shut(now + SHUT),
            // One that comes too late time and again leaves it to others.
            Room::Later(wait) => {
                let patience = if self.misses > 1 {
                    SHUT.min(PAUSE * 2_u32.pow(self.misses.min(8))).mul_f64(0.5 + fastrand::f64())
                } else {
                    Duration::ZERO
                };
                Next::Shut(now + wait.max(patience).min(Duration::from_hours(1)))
            }
            Room::Unknown => Next::Shut(now + SOON),
            Room::Locked => Next::Shut(now + SHUT * 2),
        };
    }
}
