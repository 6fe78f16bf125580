//! When to look below the floors: at all of what lies there while that is quick, else at some blocks of the table at a time.

use std::time::{Duration, Instant};

/// When to look below the floors: whenever a claim came back short or a second has passed, but never for more than a twentieth of the time,
/// because dead index entries cost more the longer anybody holds a snapshot.
#[derive(Default)]
pub(crate) struct Rescan {
    /// Not before this, lest it take more than a twentieth of the time.
    not_before: Option<Instant>,
    /// At this at the latest, so that a busy worker finds late commits too.
    at_latest: Option<Instant>,
    /// Whether a claim came back short since the last one began.
    pub(crate) owed: bool,
    /// Whether the last one of all took long: there are many dead index entries. From then on it goes by blocks.
    is_slow: bool,
    /// That is known since the last one.
    is_news: bool,
    /// How far it has come by blocks; none if the next one is of all.
    sweep: Option<Sweep>,
    /// Nobody waits for one of all before this, where it takes long.
    whole_at: Option<Instant>,
}

/// How far a look by blocks has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sweep {
    /// The block from which it goes on; at the first, no look is under way.
    next: i64,
    /// How many blocks there were at the last part of it.
    seen: i64,
}

/// How large the table is.
#[derive(Clone, Copy, Debug, sqlx::FromRow)]
pub(super) struct Extent {
    pub(super) blocks: i64,
    live: i64,
    dead: i64,
    /// Above the places that were taken until some seconds ago; none if the worker does not live.
    pub(super) place: Option<i64>,
}

/// A part of a look by blocks that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swept {
    next: Sweep,
    /// It was none, for by blocks it would take longer.
    by_index: bool,
}

/// Jobs that come meanwhile do not wait for a look that takes longer than this.
const SLOW: Duration = Duration::from_millis(2);

/// So many blocks at a time: about a millisecond, some 30,000 entries.
const PART: i64 = 256;

/// While a snapshot is held nothing is freed, so what is committed next stands in the last blocks. Each part brings these too.
const LAST: i64 = 32;

/// With fewer dead entries all of them are read in a millisecond.
const FEW_DEAD: i64 = 5_000;

impl Sweep {
    /// The parts to look at now, each from its first block up to another.
    pub(super) fn parts(self, blocks: i64) -> (Vec<(i64, i64)>, Self) {
        let first = if self.next < blocks { self.next } else { 0 };
        let beyond = (first + PART).min(blocks);
        let last = (self.seen - LAST).max(blocks - PART).max(beyond);
        let parts = [(first, beyond), (last, blocks)].into_iter().filter(|(first, beyond)| first < beyond).collect();
        (parts, Self { next: if beyond < blocks { beyond } else { 0 }, seen: blocks })
    }
}

impl Extent {
    /// Whether an index leads to what was committed late sooner: it passes over what is live, and blocks do not.
    pub(super) fn by_index(self) -> bool {
        self.blocks == 0 || self.dead <= FEW_DEAD || self.dead < self.live
    }
}

impl Swept {
    /// A part after which that look goes on there.
    pub(super) fn until(next: Sweep) -> Self {
        Self { next, by_index: false }
    }

    /// No part of it at all.
    pub(super) fn none() -> Self {
        Self { next: Sweep::default(), by_index: true }
    }
}

impl Rescan {
    /// When to claim again before going to sleep: what made the bell ring may lie below a floor.
    pub(crate) fn owed_at(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.owes())
    }

    /// Whether one is owed, or half done.
    pub(crate) fn owes(&self) -> bool {
        self.owed || self.is_half_done()
    }

    fn is_half_done(&self) -> bool {
        self.sweep.is_some_and(|sweep| sweep.next > 0)
    }

    /// Whether it is high time for one.
    pub(crate) fn is_due(&self) -> bool {
        self.at_latest.is_none_or(|at| Instant::now() >= at)
    }

    /// Whether all at once takes long, so that nobody waits for it.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Where it goes on, if it goes by blocks.
    pub(crate) fn sweep(&self) -> Option<Sweep> {
        self.sweep
    }

    /// One begins now, or goes on: what comes back short from its beginning on is owed another.
    pub(crate) fn begin(&mut self) {
        if !self.is_half_done() {
            self.owed = false;
        }
        // While it is on its way nobody waits for the next one; it nudges when it is over.
        let later = Instant::now() + Duration::from_secs(1);
        (self.not_before, self.at_latest) = (Some(later), Some(later));
    }

    /// There is no lane of which anything could be found.
    pub(crate) fn end(&mut self) {
        (self.owed, self.is_slow, self.sweep) = (false, false, None);
    }

    /// Whether there is time for one.
    pub(crate) fn may(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| now >= at)
    }

    /// Whether there is time to wait for one of all, though it takes long.
    pub(crate) fn may_take_long(&self, now: Instant) -> bool {
        self.whole_at.is_none_or(|at| now >= at)
    }

    /// One of all took so long, and found so many jobs.
    pub(crate) fn done(&mut self, took: Duration, found: usize) {
        let was_slow = self.is_slow;
        self.is_slow = took > SLOW + Duration::from_micros(50) * u32::try_from(found).unwrap_or(u32::MAX);
        (self.is_news, self.sweep) = (self.is_slow && !was_slow, self.is_slow.then(Sweep::default));
        self.whole_at = Some(Instant::now() + 400 * took);
        self.rest(20 * took, Duration::from_secs(1));
    }

    /// The first part by blocks need not wait as long as one of all would have to.
    pub(crate) fn hurry(&mut self) {
        if std::mem::take(&mut self.is_news) {
            self.not_before = Some(Instant::now());
        }
    }

    /// A part of one took so long. If it found as many as it may there are more, which another one finds.
    pub(crate) fn did(&mut self, took: Duration, part: Swept, is_full: bool) {
        self.owed |= is_full || part.by_index;
        self.sweep = (!part.by_index).then_some(part.next);
        match self.sweep {
            None => self.rest(Duration::ZERO, Duration::ZERO),
            Some(_) if self.is_half_done() => self.rest(20 * took, Duration::ZERO),
            // It has many parts.
            Some(_) => self.rest(20 * took, Duration::from_secs(3)),
        }
    }

    /// No other one for so long, and another one after that time, whether or not it is owed.
    fn rest(&mut self, rest: Duration, longest: Duration) {
        let now = Instant::now();
        (self.not_before, self.at_latest) = (Some(now + rest), Some(now + rest.max(longest)));
    }
}

#[cfg(test)]
mod tests;
