//! Idle shared connections, and the choice of a connection for a borrower. This module executes no statements.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sqlx::{PgConnection, postgres::PgConnectOptions};

use super::dial::is_same_place;

/// Session settings that a connection has in addition to the worker's common settings.
pub(super) type Settings = Vec<(&'static str, &'static str)>;

/// Borrower of a connection: store number and purpose. A connection last used by the same borrower already has the borrower's prepared
/// statements.
pub(super) type BorrowerId = (u64, &'static str);

/// Idle connections, and the number of all open connections, including borrowed connections.
#[derive(Default)]
pub(super) struct IdleConnections {
    idle: Vec<IdleConnection>,
    made: Arc<AtomicUsize>,
    shrink: ShrinkPolicy,
}

/// Idle connection with its settings and its last borrower.
pub(super) struct IdleConnection {
    pub(super) connection: PgConnection,
    pub(super) to: Arc<PgConnectOptions>,
    pub(super) since: Instant,
    pub(super) settings: Settings,
    pub(super) takes_settings: bool,
    /// Last borrower of this connection.
    pub(super) by: BorrowerId,
    pub(super) at: Instant,
    pub(super) made: ConnectionCounter,
}

/// Guard that counts a connection as open or being opened. Dropping the guard decrements the count.
pub(super) struct ConnectionCounter(Arc<AtomicUsize>);

/// Outcome of a borrower's request for a connection.
pub(super) enum BorrowOutcome {
    Idle(Box<IdleConnection>),
    /// No idle connection fits, and the borrower opens a new connection.
    Make(ConnectionCounter),
    /// No idle connection fits, and the borrower waits for a returned connection.
    Wait,
}

/// Kind of borrower. Determines which connections a borrower can reuse, and how long the borrower waits for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BorrowerKind {
    Claim,
    Settle,
    /// Claims under limits. These claims can wait for locks.
    Limits,
    /// Slow statements: pruning, and scans for jobs below a lane's floor.
    Slow,
    Rest,
}

/// Policy for closing connections that are no longer needed.
struct ShrinkPolicy {
    since: Instant,
    /// Whether a connection had to be opened in the current period.
    more: bool,
}

/// Idle time after which a connection that many stores share is closed, once a store other than its last borrower needs a connection.
const UNUSED: Duration = Duration::from_mins(1);

/// Period without a new connection after which one connection is closed. If the closed connection is still needed, it is reopened at most
/// once in two periods.
const WHILE: Duration = Duration::from_secs(15);

/// Minimum number of connections of a single worker: one for claims, and one for all other statements.
const LEAST: usize = 2;

impl BorrowerKind {
    pub(super) fn of(purpose: &str) -> Self {
        match purpose {
            "claim" => Self::Claim,
            "settle" => Self::Settle,
            "limits" => Self::Limits,
            "prune" | "late" => Self::Slow,
            _ => Self::Rest,
        }
    }

    /// Returns how long a borrower waits for a returned connection before opening a new connection.
    pub(super) fn patience(self) -> Duration {
        match self {
            Self::Claim => Duration::ZERO,
            Self::Settle | Self::Limits => Duration::from_millis(5),
            Self::Slow | Self::Rest => Duration::from_millis(25),
        }
    }

    /// Returns whether this kind of borrower can use a connection last used by the kind `last`. Only claims can use a claim's connection,
    /// and claims cannot use a settle's connection.
    fn may_reuse(self, last: Self) -> bool {
        match last {
            Self::Claim => self == Self::Claim,
            Self::Settle => self != Self::Claim,
            Self::Limits | Self::Slow | Self::Rest => true,
        }
    }
}

impl IdleConnections {
    /// Returns the best idle connection for a loop of a single worker. If no idle connection fits, the loop opens a connection or waits
    /// for a returned connection. The loop opens a connection if fewer than `most` connections are open, and either `waits` is false or
    /// fewer than [`LEAST`] are open.
    pub(super) fn of_one(
        &mut self,
        by: BorrowerId,
        settings: &Settings,
        now: &PgConnectOptions,
        most: usize,
        waits: bool,
    ) -> BorrowOutcome {
        self.idle.retain(|idle| is_same_place(now, &idle.to));
        let (part, made) = (BorrowerKind::of(by.1), self.made());
        let may = |idle: &IdleConnection| made >= most || part.may_reuse(BorrowerKind::of(idle.by.1));
        let fits =
            |idle: &IdleConnection| (idle.by == by, BorrowerKind::of(idle.by.1) == BorrowerKind::Rest, idle.settings == *settings, idle.at);
        let best = self.idle.iter().enumerate().filter(|(_, idle)| may(idle)).max_by_key(|(_, idle)| fits(idle)).map(|(nth, _)| nth);
        match best {
            Some(nth) => BorrowOutcome::Idle(Box::new(self.idle.swap_remove(nth))),
            None if made < most && (made < LEAST || !waits) => {
                self.shrink.more = true;
                BorrowOutcome::Make(self.make())
            }
            None => BorrowOutcome::Wait,
        }
    }

    /// Returns the best idle connection for a store. While fewer than `most` connections are open, only connections with the same
    /// settings qualify. Otherwise, every idle connection qualifies. A connection with the store's prepared statements is preferred. If
    /// no connection qualifies, the store opens a new connection.
    pub(super) fn of_many(&mut self, by: BorrowerId, settings: &Settings, now: &PgConnectOptions, most: usize) -> BorrowOutcome {
        self.idle.retain(|idle| is_same_place(now, &idle.to) && (idle.at.elapsed() < UNUSED || idle.by.0 == by.0));
        let fits = |idle: &IdleConnection| (idle.settings == *settings, idle.by.0 == by.0);
        let best = self.idle.iter().enumerate().max_by_key(|(_, idle)| (fits(idle), idle.at)).map(|(nth, _)| nth);
        match best.filter(|nth| fits(&self.idle[*nth]) > (false, true) || self.made() >= most) {
            Some(nth) => BorrowOutcome::Idle(Box::new(self.idle.swap_remove(nth))),
            None => BorrowOutcome::Make(self.make()),
        }
    }

    /// Adds a returned connection to the idle connections. If `of_one` is true and a connection is no longer needed, closes the least
    /// recently used idle connection.
    pub(super) fn put(&mut self, idle: IdleConnection, of_one: bool) {
        self.idle.push(idle);
        if of_one && self.shrink.may_close(Instant::now()) && self.made() > LEAST {
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

    /// Counts a connection that is about to be opened. Called only while the idle connections are locked, so the number of connections
    /// cannot exceed the maximum.
    fn make(&self) -> ConnectionCounter {
        self.made.fetch_add(1, Relaxed);
        ConnectionCounter(Arc::clone(&self.made))
    }
}

impl Drop for ConnectionCounter {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Default for ShrinkPolicy {
    fn default() -> Self {
        Self { since: Instant::now(), more: false }
    }
}

impl ShrinkPolicy {
    /// Returns whether a full period has ended without a new connection. One connection can then be closed.
    fn may_close(&mut self, at: Instant) -> bool {
        let has_elapsed = at.saturating_duration_since(self.since) >= WHILE;
        let may = has_elapsed && !self.more;
        if has_elapsed {
            (self.since, self.more) = (at, false);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_may_be_closed_after_each_period_without_a_new_one() {
        let mut shrink = ShrinkPolicy::default();
        let began = shrink.since;
        assert!(!shrink.may_close(began + WHILE / 2));
        assert!(shrink.may_close(began + WHILE) && !shrink.may_close(began + WHILE), "one at a time");
        shrink.more = true;
        assert!(!shrink.may_close(began + 2 * WHILE), "one was opened");
        assert!(shrink.may_close(began + 3 * WHILE));
    }

    #[test]
    fn no_other_kind_reuses_the_connection_of_claims_and_claims_do_not_reuse_that_of_settles() {
        for part in [BorrowerKind::Settle, BorrowerKind::Limits, BorrowerKind::Slow, BorrowerKind::Rest] {
            assert!(!part.may_reuse(BorrowerKind::Claim), "{part:?}");
            assert!(part.may_reuse(BorrowerKind::Settle) && part.may_reuse(BorrowerKind::Rest), "{part:?}");
        }
        assert!(
            BorrowerKind::Claim.may_reuse(BorrowerKind::Claim)
                && BorrowerKind::Claim.may_reuse(BorrowerKind::Rest)
                && !BorrowerKind::Claim.may_reuse(BorrowerKind::Settle)
        );
        assert_eq!(
            ["claim", "settle", "limits", "prune", "waiters"].map(BorrowerKind::of),
            [BorrowerKind::Claim, BorrowerKind::Settle, BorrowerKind::Limits, BorrowerKind::Slow, BorrowerKind::Rest]
        );
    }
}
