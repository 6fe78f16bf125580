//! The shared connections that nobody has at present, and who gets which. Knows nothing of statements.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sqlx::{PgConnection, postgres::PgConnectOptions};

use super::dial::is_same_place;

/// What a connection is set to, beside what all of ours are.
pub(super) type Settings = Vec<(&'static str, &'static str)>;

/// Who has a connection: the number of a store, and what for. Statements of theirs are prepared there.
pub(super) type By = (u64, &'static str);

/// Those that lie idle, and how many there are in all.
#[derive(Default)]
pub(super) struct Shelf {
    idle: Vec<Idle>,
    made: Arc<AtomicUsize>,
    thrift: Thrift,
}

/// One that nobody has at present.
pub(super) struct Idle {
    pub(super) connection: PgConnection,
    pub(super) to: Arc<PgConnectOptions>,
    pub(super) since: Instant,
    pub(super) settings: Settings,
    pub(super) takes_settings: bool,
    /// Who has had it last.
    pub(super) by: By,
    pub(super) at: Instant,
    pub(super) made: Made,
}

/// Stands for a connection that there is, or that is being made.
pub(super) struct Made(Arc<AtomicUsize>);

/// What there is for a borrower.
pub(super) enum Lending {
    Idle(Box<Idle>),
    /// One is to be made.
    Make(Made),
    /// One may be given back soon.
    Wait,
}

/// Who borrows: those whose statements are waited for are not kept waiting by the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Claim,
    Settle,
    /// Claims under limits, which wait for locks.
    Limits,
    /// Those that may take long, each a while: prunings, and looks below the floors.
    Slow,
    Rest,
}

/// Whether there are more of them than are of use.
struct Thrift {
    since: Instant,
    /// One had to be made since.
    more: bool,
}

/// What nobody has used for so long is closed.
const UNUSED: Duration = Duration::from_mins(1);

/// After so long in which none had to be made one is closed. If that was wrong, it is made again: once in two of these.
const WHILE: Duration = Duration::from_secs(15);

/// Of those that one worker has for itself: one for claims, and one for everything else.
const LEAST: usize = 2;

impl Part {
    pub(super) fn of(purpose: &str) -> Self {
        match purpose {
            "claim" => Self::Claim,
            "settle" => Self::Settle,
            "limits" => Self::Limits,
            "prune" | "late" => Self::Slow,
            _ => Self::Rest,
        }
    }

    /// How long it waits for one that others have before another is made.
    pub(super) fn patience(self) -> Duration {
        match self {
            Self::Claim => Duration::ZERO,
            Self::Settle | Self::Limits => Duration::from_millis(5),
            Self::Slow | Self::Rest => Duration::from_millis(25),
        }
    }

    /// Whether it may have what another part has had last: a claim finds its connection as it left it, and a settle too, but for the rest.
    fn may_have_of(self, last: Self) -> bool {
        match last {
            Self::Claim => self == Self::Claim,
            Self::Settle => self != Self::Claim,
            Self::Limits | Self::Slow | Self::Rest => true,
        }
    }
}

impl Shelf {
    /// The best that there is for a loop of the one worker that has these for itself. While others are in use it waits for one of them, if it may.
    pub(super) fn of_one(&mut self, by: By, settings: &Settings, now: &PgConnectOptions, most: usize, waits: bool) -> Lending {
        self.idle.retain(|idle| is_same_place(now, &idle.to));
        let (part, made) = (Part::of(by.1), self.made());
        let may = |idle: &Idle| made >= most || part.may_have_of(Part::of(idle.by.1));
        let fits = |idle: &Idle| (idle.by == by, Part::of(idle.by.1) == Part::Rest, idle.settings == *settings, idle.at);
        let best = self.idle.iter().enumerate().filter(|(_, idle)| may(idle)).max_by_key(|(_, idle)| fits(idle)).map(|(nth, _)| nth);
        match best {
            Some(nth) => Lending::Idle(Box::new(self.idle.swap_remove(nth))),
            None if made < most && (made < LEAST || !waits) => {
                self.thrift.more = true;
                Lending::Make(self.make())
            }
            None => Lending::Wait,
        }
    }

    /// The best that there is for a store: with statements of it, or at least with these settings. Any, if no more may be made.
    pub(super) fn of_many(&mut self, by: By, settings: &Settings, now: &PgConnectOptions, most: usize) -> Lending {
        self.idle.retain(|idle| is_same_place(now, &idle.to) && (idle.at.elapsed() < UNUSED || idle.by.0 == by.0));
        let fits = |idle: &Idle| (idle.settings == *settings, idle.by.0 == by.0);
        let best = self.idle.iter().enumerate().max_by_key(|(_, idle)| (fits(idle), idle.at)).map(|(nth, _)| nth);
        match best.filter(|nth| fits(&self.idle[*nth]) > (false, true) || self.made() >= most) {
            Some(nth) => Lending::Idle(Box::new(self.idle.swap_remove(nth))),
            None => Lending::Make(self.make()),
        }
    }

    /// Takes one back. Of those that one worker has for itself that goes which was not used for the longest, if there may be too many.
    pub(super) fn put(&mut self, idle: Idle, of_one: bool) {
        self.idle.push(idle);
        if of_one && self.thrift.may_go(Instant::now()) && self.made() > LEAST {
            let oldest = self.idle.iter().enumerate().min_by_key(|(_, idle)| idle.at).map(|(nth, _)| nth);
            oldest.map(|nth| self.idle.swap_remove(nth));
        }
    }

    pub(super) fn forget_idle(&mut self) {
        self.idle.clear();
    }

    fn made(&self) -> usize {
        self.made.load(Relaxed)
    }

    /// Only while the shelf is locked more of them are made.
    fn make(&self) -> Made {
        self.made.fetch_add(1, Relaxed);
        Made(Arc::clone(&self.made))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Default for Thrift {
    fn default() -> Self {
        Self { since: Instant::now(), more: false }
    }
}

impl Thrift {
    /// Whether one may go: a while has passed in which none was made.
    fn may_go(&mut self, at: Instant) -> bool {
        let is_over = at.saturating_duration_since(self.since) >= WHILE;
        let may = is_over && !self.more;
        if is_over {
            (self.since, self.more) = (at, false);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_may_go_after_each_while_in_which_none_was_made() {
        let mut thrift = Thrift::default();
        let began = thrift.since;
        assert!(!thrift.may_go(began + WHILE / 2));
        assert!(thrift.may_go(began + WHILE) && !thrift.may_go(began + WHILE), "one at a time");
        thrift.more = true;
        assert!(!thrift.may_go(began + 2 * WHILE), "one was made");
        assert!(thrift.may_go(began + 3 * WHILE));
    }

    #[test]
    fn nobody_takes_the_connection_of_claims_and_claims_take_that_of_nobody_who_is_waited_for() {
        for part in [Part::Settle, Part::Limits, Part::Slow, Part::Rest] {
            assert!(!part.may_have_of(Part::Claim), "{part:?}");
            assert!(part.may_have_of(Part::Settle) && part.may_have_of(Part::Rest), "{part:?}");
        }
        assert!(Part::Claim.may_have_of(Part::Claim) && Part::Claim.may_have_of(Part::Rest) && !Part::Claim.may_have_of(Part::Settle));
        assert_eq!(
            ["claim", "settle", "limits", "prune", "tell"].map(Part::of),
            [Part::Claim, Part::Settle, Part::Limits, Part::Slow, Part::Rest]
        );
    }
}
