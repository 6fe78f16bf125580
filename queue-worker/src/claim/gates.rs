//! What a worker knows of limits: for each group of lanes when to claim next, and what has ended here that no claim has said yet. Decides nothing
//! about other lanes, and does not touch the database.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{flight::Flight, free::Free, round::Round, slow::Slow};
use crate::{
    lanes::{Freed, Rescan, Room},
    live::Bell,
};

/// What is known of each group of lanes, by the gates of its limits.
pub(super) struct Limits {
    pub(super) freed: Freed,
    pub(super) groups: HashMap<Arc<[i64]>, State>,
    /// Some limits have jobs here, for which no slot is free.
    pub(super) saturated: bool,
    /// Where handlers were told to slow down.
    pub(super) slow: Slow,
    /// What is known of the lanes without any.
    pub(super) free: Free,
    /// How many claims were sent.
    sent: u64,
}

/// Of one group.
#[expect(clippy::struct_excessive_bools, reason = "each is true or not by itself, whatever the others are")]
pub(super) struct State {
    pub(super) flight: Option<Flight>,
    /// Claims that have said what they took, and wait until it is on the disk: in the order in which they were sent.
    pub(super) landing: VecDeque<Flight>,
    /// How many of them there are at most when the next one is sent.
    pub(super) ahead: usize,
    /// The number of its last claim among those of all groups: of equal ones the one that was asked longest ago goes first.
    pub(super) sent: u64,
    /// Leases of which jobs ended here, which no claim has said yet; since when there are some; and when some were said last.
    pub(super) freed: HashSet<Uuid>,
    pub(super) since: Option<Instant>,
    pub(super) said: Option<Instant>,
    pub(super) next: Next,
    /// Which of its lanes goes first; another one after each claim that brought jobs.
    pub(super) turn: usize,
    /// Whether the last claim came short that was for the kind of jobs that goes first, batches or single ones: now it is the other kind's turn.
    pub(super) others: bool,
    /// Whether its lanes are of both kinds.
    pub(super) has_both: bool,
    pub(super) rescan: Rescan,
    /// Its time has come, and it waits for a slot or its turn: whoever ends that rings.
    pub(super) waits: bool,
    /// When its last claim came short: it does not take the slots again before others were asked who found none meanwhile.
    pub(super) short: Option<Instant>,
    /// How many claims had been sent when as many were on their way as may be, so that it has waited since.
    pub(super) passed_at: Option<u64>,
    /// How often in a row no permit was left when its time had come.
    misses: u32,
    /// How far it has looked past keys that have no room.
    round: Round,
    /// How long it may take from a claim to the beginning of its jobs, as it has shown: a rate counts them until then.
    pub(super) slack: Duration,
    /// From where on to read the permits of each limit, and when the claim that said so was sent.
    pub(super) floors: Option<(Vec<i64>, Instant)>,
    /// How long the last claim took.
    pub(super) took: Duration,
    /// Somebody said that there is room since the last one was sent.
    pub(super) told: bool,
    /// A look for jobs came too soon after the last claim.
    owed: bool,
}

/// In which step of a pass claims are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// At its begin: those whose time has come.
    First,
    /// Before the lanes without limits are claimed: those of lanes that may hold jobs, too.
    Before,
    /// After that, if it left slots.
    After,
}

/// When to claim next.
#[derive(Clone, Copy)]
pub(super) enum Next {
    /// Now: there may be more.
    Now,
    /// When a look for jobs is due anyway, but not before this: all there was has been taken.
    Look(Instant),
    /// Not before this, unless something says that there is room.
    Shut(Instant),
    /// Not before this, whoever says so: the last claim failed, or a handler was told to slow down.
    Broken(Instant),
    /// Of the keys that wait none has room, but others may come: with a look for jobs, but not before the first, and at the second anyway.
    Keys(Instant, Instant),
}

/// So many claims under limits are on their way at once.
pub(super) const MOST: usize = 4;

/// The same with those that wait for the disk.
const MOST_LINKS: usize = 6;

/// A gate is tried again after this, whether or not anybody says that there is room.
pub(super) const SHUT: Duration = Duration::from_secs(1);

/// Where not all workers know a limit yet, they are about to.
const SOON: Duration = Duration::from_millis(50);

/// Lanes that were empty are not asked again before this while others are claimed.
pub(super) const PAUSE: Duration = Duration::from_millis(5);

/// A claim that took long makes the next ones' starts count no later than this; jobs that come too late all the same, no later than that.
const LONG: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_hours(1);

/// What has ended here is said at once, even if there is no slot to claim for; but not again before this.
const SAY: Duration = Duration::from_millis(20);

impl Limits {
    pub(super) fn new(bell: &Arc<Bell>) -> Self {
        Self {
            freed: Freed::new(Arc::clone(bell)),
            groups: HashMap::new(),
            saturated: false,
            slow: Slow::default(),
            free: Free::default(),
            sent: 0,
        }
    }

    /// Whether as many claims are on their way as may be.
    pub(super) fn are_full(&self) -> bool {
        let sent = self.groups.values().filter(|state| state.flight.is_some()).count();
        sent >= MOST || sent + self.groups.values().map(|state| state.landing.len()).sum::<usize>() >= MOST_LINKS
    }

    /// Whether a claim is on its way.
    pub(super) fn in_air(&self) -> bool {
        self.groups.values().any(State::in_air)
    }

    /// When the claim loop is to look again at the latest.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = |state: &State| {
            let next = match state.next {
                _ if state.waits => None,
                Next::Broken(at) => return (!state.waits).then_some(at),
                Next::Shut(at) => Some(at),
                Next::Keys(look, at) => Some(if state.owed { look } else { at }),
                Next::Look(_) => state.rescan.owed_at(),
                Next::Now => None,
            };
            next.into_iter().chain(state.say_at()).min()
        };
        if self.are_full() {
            return self.slow.due();
        }
        // Where one is on its way others may wait for, only for so long.
        let now = Instant::now();
        let old = self
            .groups
            .values()
            .filter_map(|state| state.flight.as_ref().or(state.landing.front()))
            .map(Flight::old)
            .filter(|at| *at > now);
        self.groups.values().filter(|state| state.may_send()).filter_map(due).chain(old).chain(self.slow.due()).min()
    }

    /// Whether some lanes are to be claimed from below their floors, as soon as there is time.
    pub(super) fn owe(&self) -> bool {
        self.groups.values().any(|state| state.may_send() && matches!(state.next, Next::Look(_)) && state.rescan.owed)
    }

    /// All gates are to be tried again: the limits have changed, or this worker is another one.
    pub(super) fn reopen(&mut self) {
        for state in self.groups.values_mut() {
            (state.next, state.misses, state.told, state.round) = (Next::Now, 0, true, Round::default());
        }
    }

    /// Nothing is claimed here under these limits, which are being told to wait.
    pub(super) fn hold(&mut self, slowed: &[i64], until: Instant) {
        let next = Next::Broken(until.min(Instant::now() + SHUT));
        for (_, state) in self.groups.iter_mut().filter(|(gates, _)| gates.iter().any(|gate| slowed.contains(gate))) {
            state.next = next;
        }
    }

    /// Forgets what only the last server could know.
    pub(super) fn forget_server(&mut self) {
        for state in self.groups.values_mut() {
            (state.floors, state.rescan) = (None, Rescan::default());
        }
    }

    pub(super) fn state(&mut self, gates: &Arc<[i64]>) -> &mut State {
        self.groups.entry(Arc::clone(gates)).or_insert_with(|| State {
            flight: None,
            landing: VecDeque::new(),
            ahead: 1,
            sent: 0,
            freed: HashSet::new(),
            since: None,
            said: None,
            next: Next::Now,
            turn: 0,
            others: false,
            has_both: false,
            waits: false,
            short: None,
            passed_at: None,
            rescan: Rescan::default(),
            misses: 0,
            round: Round::default(),
            slack: Duration::ZERO,
            floors: None,
            took: Duration::ZERO,
            told: false,
            owed: false,
        })
    }

    /// A claim is sent, of jobs in these queues.
    pub(super) fn note_sent<'a>(&mut self, gates: &Arc<[i64]>, queues: impl Iterator<Item = &'a Arc<str>>) {
        self.sent += 1;
        let sent = self.sent;
        self.state(gates).sent = sent;
        self.free.had_turn.extend(queues.cloned());
    }

    /// Of those who wait since too many claims were on their way, who has waited longest: how many had been sent by then.
    pub(super) fn waits_since(&self) -> Option<u64> {
        self.groups.values().filter_map(|state| state.passed_at).min()
    }

    /// Too many claims are on their way for this one.
    pub(super) fn note_passed(&mut self, gates: &Arc<[i64]>) {
        let sent = self.sent;
        let state = self.state(gates);
        state.pass_over();
        state.passed_at.get_or_insert(sent);
    }

    /// Whether lanes without limits found no slot while a group held some in vain.
    pub(super) fn owe_chance(&self) -> bool {
        !self.free.unasked.is_empty() && self.groups.values().any(|state| state.short.is_some())
    }

    /// The lanes without limits were asked. Groups that came short gave way to them, unless others took the slots meanwhile.
    pub(super) fn had_chance(&mut self) {
        if self.free.unasked.is_empty() || !self.in_air() {
            for state in self.groups.values_mut() {
                state.short = None;
            }
        }
    }

    /// Takes note of what has ended here, and of where others say that there is room.
    pub(super) fn hear(&mut self, bell: &Bell) {
        let (freed, room, late) = (self.freed.take(), bell.take_freed(), bell.take_late());
        for (_, state) in self.groups.iter_mut().filter(|(gates, _)| gates.iter().any(|gate| late.contains(gate))) {
            state.note_late();
        }
        if freed.is_empty() && room.is_empty() {
            return;
        }
        for (gates, state) in &mut self.groups {
            let of_these = |other: &[i64]| other.iter().any(|gate| gates.contains(gate));
            let before = state.freed.len();
            state.freed.extend(freed.iter().filter(|(_, other)| of_these(other)).map(|(token, _)| *token));
            if state.freed.len() > before {
                state.since.get_or_insert_with(Instant::now);
            }
            if state.freed.len() > before || gates.iter().any(|gate| room.contains(gate)) {
                state.told = true;
                if matches!(state.next, Next::Shut(_) | Next::Keys(..)) {
                    state.next = Next::Now;
                }
            }
        }
    }
}

impl State {
    /// Whether all that waits has no room, as far as is known: of some keys only.
    pub(super) fn is_shut_by_key(&self) -> bool {
        matches!(self.next, Next::Keys(..))
    }

    /// Whether a claim is to be sent: now, or with a look for jobs.
    pub(super) fn is_due(&mut self, now: Instant, looks: bool, hurry: bool) -> bool {
        match self.next {
            _ if !self.may_send() => false,
            Next::Now => true,
            Next::Look(at) => (looks && (hurry || now >= at)) || (self.rescan.owed && self.rescan.may(now)),
            Next::Shut(at) | Next::Broken(at) => now >= at,
            Next::Keys(look, at) => {
                self.owed |= looks;
                now >= at || (self.owed && now >= look)
            }
        }
    }

    /// Whether what has ended here is to be said now, even if there is no slot to claim for.
    pub(super) fn says(&self, now: Instant) -> bool {
        let has_time = !matches!(self.next, Next::Broken(at) if now < at);
        has_time && self.may_send() && self.say_at().is_some_and(|at| now >= at)
    }

    /// When it is, if anything is.
    fn say_at(&self) -> Option<Instant> {
        self.since.map(|since| self.said.map_or(since, |said| since.max(said + SAY)))
    }

    /// Whether it lets others go first: who found no slot while it claimed in vain, if any did; and who has been waiting since before its last claim.
    /// Not for ever: others may take all slots before whom it would go.
    pub(super) fn yields(&self, now: Instant, any_unasked: bool, waits_since: Option<u64>) -> bool {
        let was_short = any_unasked && self.short.is_some_and(|at| now < at + SHUT);
        matches!(self.next, Next::Look(_)) && (was_short || waits_since.is_some_and(|since| self.sent > since))
    }

    /// It was to be claimed with a look, and others had all that takes: it is next once they have come.
    pub(super) fn pass_over(&mut self) {
        if matches!(self.next, Next::Look(_)) {
            self.next = Next::Now;
        }
    }

    /// A claim failed that was to say this: not again at once, for whatever failed may fail again.
    pub(super) fn fail(&mut self, said: impl IntoIterator<Item = Uuid>, from_zero: bool) {
        self.next = Next::Broken(Instant::now() + SHUT);
        self.freed.extend(said);
        self.floors = None;
        self.rescan.owed |= from_zero;
        if !self.freed.is_empty() {
            self.since.get_or_insert_with(Instant::now);
        }
    }

    /// Whether nothing could begin now.
    pub(super) fn is_shut(&self) -> bool {
        matches!(self.next, Next::Shut(_) | Next::Broken(_) | Next::Keys(..))
    }

    /// Jobs under a rate have landed so long after their claim.
    pub(super) fn note_spent(&mut self, spent: Duration) {
        self.slack = (spent * 4).min(LONG).max(self.slack.mul_f64(0.75));
    }

    /// Some came too late to begin: from now on there is more time, or else none might ever begin.
    pub(super) fn note_late(&mut self) {
        self.slack = (self.slack * 2).clamp(PAUSE, LONGEST);
        if self.slack > LONG {
            tracing::warn!(
                seconds = self.slack.as_secs_f64(),
                "jobs under a rate begin long after their claim, so that fewer do; is the worker's middleware slow, or the disk?"
            );
        }
    }

    /// A claim has landed that took so many jobs of what it asked for.
    pub(super) fn note(&mut self, room: Room, count: usize, most: usize) {
        let now = Instant::now();
        self.turn = self.turn.wrapping_add(usize::from(count > 0));
        self.short = (matches!(room, Room::Open | Room::Keys(_)) && count < most).then_some(now);
        self.misses = if count > 0 { 0 } else { self.misses.saturating_add(1) };
        if count > 0 {
            self.round.found();
        }
        self.owed = false;
        // No more than a twentieth of the time goes into looking past keys that have no room.
        let look = now + PAUSE.max(20 * self.took);
        self.next = match room {
            // Since this one was sent: it may have come too early for that.
            Room::Full | Room::Keys(_) if self.told => Next::Now,
            Room::Keys(wait) => Next::Keys(look, now + wait.unwrap_or(SHUT).min(SHUT)),
            Room::More(_) if count > 0 => Next::Now,
            Room::More(part) => self.round.in_vain(part, self.took, now, SHUT).map_or(Next::Now, |at| Next::Keys(look, at)),
            Room::Open if count >= most && most > 0 => Next::Now,
            Room::Open => Next::Look(now + PAUSE),
            Room::Full | Room::Gone => Next::Shut(now + SHUT),
            // Whoever comes too late time and again leaves it to others.
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
