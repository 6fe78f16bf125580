//! Shared connections. A loop borrows a connection for a statement or a transaction and then returns it.
//!
//! A worker of a single store opens only as many connections as its loops use at the same time. Most loops are rarely active. With many
//! stores, the loops of all stores share one set of connections. Each store can use only a few connections at the same time, so a store
//! with hanging statements does not starve the other stores.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Instant,
};

use sqlx::{AssertSqlSafe, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::timeout_at,
};

use super::{
    dial::{connect_along, is_marked, mark},
    idle_connections::{BorrowOutcome, BorrowerId, BorrowerKind, ConnectionCounter, IdleConnection, IdleConnections, Settings},
};

/// Set of shared connections to one database.
pub(crate) struct ConnectionBroker {
    purpose: &'static str,
    /// Whether the connections belong to a single worker.
    of_one: bool,
    most: Mutex<usize>,
    room: Arc<Semaphore>,
    idle_connections: Mutex<IdleConnections>,
    /// Wakes borrowers that are waiting for a returned connection.
    returned: Notify,
    /// Number of detected connection failures. After a failure, information from earlier connections may come from another server.
    deaths: AtomicU64,
}

/// Handle to the shared connections, with the permits of one store or worker.
#[derive(Clone)]
pub(crate) struct Borrower {
    exchange: Arc<ConnectionBroker>,
    /// Permits for claims without limits.
    claims: Arc<Semaphore>,
    /// Permits for claims under limits, which may wait for locks.
    limits: Arc<Semaphore>,
    /// Permits for statements other than claims and settles.
    rest: Arc<Semaphore>,
    /// Permits for slow statements: pruning, and scans for jobs below a lane's floor.
    slow: Arc<Semaphore>,
    number: u64,
}

/// Borrowed connection with the terms of the loan.
pub(super) struct BorrowedConnection {
    pub(super) connection: PgConnection,
    pub(super) to: Arc<PgConnectOptions>,
    pub(super) since: Instant,
    pub(super) terms: LoanTerms,
    /// Whether the connection was opened for this loan.
    pub(super) is_fresh: bool,
}

/// Terms of a loan: whether the connection accepts settings, and the permits that the loan holds.
pub(super) struct LoanTerms {
    /// Whether the borrower's settings can be set on the connection. Behind a pooler, the settings could leak to the next client of the
    /// server connection.
    takes_settings: bool,
    made: ConnectionCounter,
    _permits: Permits,
}

/// Permits that a loan holds: permits of the borrower's kind, and one permit of the whole set.
type Permits = (Vec<OwnedSemaphorePermit>, OwnedSemaphorePermit);

/// Maximum number of connections that each store can use at the same time if many stores share the connections.
const EACH: usize = 4;

/// Maximum number of prepared statements cached per connection.
const STATEMENTS: usize = 500;

/// Names of the settings that differ between borrowers.
const DIFFERENT: [&str; 3] = ["synchronous_commit", "lock_timeout", "statement_timeout"];

/// Default lock timeout on shared connections.
const LOCKED: &str = "2s";

impl ConnectionBroker {
    /// Creates a set of up to `most` connections, shared by many stores.
    pub(crate) fn new(purpose: &'static str, most: usize) -> Arc<Self> {
        Self::of(purpose, most, false)
    }

    fn of(purpose: &'static str, most: usize, of_one: bool) -> Arc<Self> {
        let (room, idle_connections) = (Arc::new(Semaphore::new(most)), Mutex::default());
        Arc::new(Self {
            purpose,
            of_one,
            most: Mutex::new(most),
            room,
            idle_connections,
            returned: Notify::new(),
            deaths: AtomicU64::new(0),
        })
    }

    /// Creates the set of connections for a single worker, with at least two connections. With three or more connections, hanging
    /// statements of the kind [`BorrowerKind::Rest`] leave one connection for claims and one for settles. With two connections, they leave
    /// one connection for both.
    pub(crate) fn of_one_worker(most: usize) -> Borrower {
        let most = most.max(2);
        let at_once = |permits: usize| Arc::new(Semaphore::new(permits.max(1)));
        let (claims, limits, rest) = (at_once(most - 1), at_once(most.saturating_sub(4)), at_once(most - 2));
        let slow = at_once(if most < 4 { 1 } else { 2 });
        Borrower { exchange: Self::of("loops", most, true), claims, limits, rest, slow, number: 0 }
    }

    /// Raises the maximum number of connections to `most`, unless the maximum is already higher.
    pub(crate) fn raise_limit(&self, most: usize) {
        let mut before = self.most.lock().unwrap_or_else(PoisonError::into_inner);
        self.room.add_permits(most.saturating_sub(*before));
        *before = most.max(*before);
    }

    /// Returns a handle for the store with the given number. If there are more than two connections, a single store cannot use all of
    /// them.
    pub(crate) fn borrower(self: &Arc<Self>, number: u64) -> Borrower {
        let own = Arc::new(Semaphore::new(self.most().saturating_sub(2).clamp(2, EACH)));
        // The statements of a store share one set of permits, regardless of their kind.
        let [claims, limits, rest, slow] = std::array::from_fn(|_| Arc::clone(&own));
        Borrower { exchange: Arc::clone(self), claims, limits, rest, slow, number }
    }

    fn most(&self) -> usize {
        *self.most.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle_connections(&self) -> MutexGuard<'_, IdleConnections> {
        self.idle_connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the best idle connection for the borrower. If the borrower must open a new connection, returns `Err` with a guard that
    /// counts this connection.
    async fn take(&self, by: BorrowerId, settings: &Settings, now: &PgConnectOptions) -> Result<Box<IdleConnection>, ConnectionCounter> {
        let until = Instant::now() + BorrowerKind::of(by.1).patience();
        loop {
            let returned = self.returned.notified();
            let found = {
                let (mut idle_connections, most) = (self.idle_connections(), self.most());
                if self.of_one {
                    idle_connections.of_one(by, settings, now, most, Instant::now() < until)
                } else {
                    idle_connections.of_many(by, settings, now, most)
                }
            };
            match found {
                BorrowOutcome::Idle(idle) => return Ok(idle),
                BorrowOutcome::Make(made) => return Err(made),
                BorrowOutcome::Wait => drop(timeout_at(until.into(), returned).await),
            }
        }
    }
}

impl Borrower {
    /// Lends a connection with the given settings. Waits for a connection if necessary.
    pub(super) async fn lend(&self, pool: &PgPool, purpose: &'static str, settings: &Settings) -> sqlx::Result<BorrowedConnection> {
        let (permits, exchange) = (self.permits(BorrowerKind::of(purpose)).await?, &*self.exchange);
        let (to, by) = (pool.connect_options(), (self.number, purpose));
        let name = exchange.of_one.then_some(purpose);
        let (mut lent, is_set) = match exchange.take(by, settings, &to).await {
            Ok(idle) => {
                let IdleConnection { connection, to, since, settings: set, takes_settings, by: last, made, .. } = *idle;
                let is_set = set == *settings && (name.is_none() || last == by);
                (
                    BorrowedConnection {
                        connection,
                        to,
                        since,
                        terms: LoanTerms { takes_settings, made, _permits: permits },
                        is_fresh: false,
                    },
                    is_set,
                )
            }
            Err(made) => {
                let like = (name.unwrap_or(exchange.purpose), Some(STATEMENTS));
                let (to, mut connection) = connect_along(pool, like, &[mark()]).await?;
                let takes_settings = is_marked(&mut connection).await?;
                let terms = LoanTerms { takes_settings, made, _permits: permits };
                (BorrowedConnection { connection, to, since: Instant::now(), terms, is_fresh: true }, false)
            }
        };
        if !is_set && lent.terms.takes_settings {
            sqlx::raw_sql(AssertSqlSafe(setting(settings, name))).execute(&mut lent.connection).await?;
        }
        Ok(lent)
    }

    /// Waits for the permits that a borrower of the given kind needs.
    async fn permits(&self, part: BorrowerKind) -> sqlx::Result<Permits> {
        let kinds: &[_] = match part {
            BorrowerKind::Settle if self.exchange.of_one => &[],
            BorrowerKind::Limits if self.exchange.of_one => &[&self.limits, &self.rest],
            BorrowerKind::Claim => &[&self.claims],
            BorrowerKind::Slow => &[&self.slow],
            BorrowerKind::Settle | BorrowerKind::Limits | BorrowerKind::Rest => &[&self.rest],
        };
        let closed = |_| sqlx::Error::PoolClosed;
        let mut own = Vec::with_capacity(kinds.len());
        for kind in kinds {
            own.push(Arc::clone(kind).acquire_owned().await.map_err(closed)?);
        }
        Ok((own, Arc::clone(&self.exchange.room).acquire_owned().await.map_err(closed)?))
    }

    pub(super) fn deaths(&self) -> u64 {
        self.exchange.deaths.load(SeqCst)
    }

    /// Records a connection failure and drops the idle connections. These connections may be dead as well, and would otherwise time out
    /// one by one. Does nothing if the number of failures is no longer `deaths`, because another borrower has then recorded the failure.
    pub(super) fn record_death(&self, deaths: u64) {
        let is_first = self.exchange.deaths.compare_exchange(deaths, deaths + 1, SeqCst, SeqCst).is_ok();
        if is_first {
            self.exchange.idle_connections().forget_idle();
        }
    }

    /// Takes back a connection that is still usable.
    pub(super) fn give_back(
        &self,
        BorrowedConnection { connection, to, since, terms, .. }: BorrowedConnection,
        purpose: &'static str,
        settings: &Settings,
    ) {
        let LoanTerms { takes_settings, made, _permits } = terms;
        let (by, at, settings) = ((self.number, purpose), Instant::now(), settings.clone());
        let idle = IdleConnection { connection, to, since, settings, takes_settings, by, at, made };
        self.exchange.idle_connections().put(idle, self.exchange.of_one);
        self.exchange.returned.notify_one();
    }
}

/// Builds the statements that set the application name (if given) and all settings that differ between borrowers.
fn setting(settings: &Settings, name: Option<&str>) -> String {
    let one = |name: &str| match settings.iter().rev().find(|(known, _)| *known == name) {
        Some((_, value)) => format!("set {name} = '{value}'"),
        None if name == "lock_timeout" => format!("set {name} = '{LOCKED}'"),
        None => format!("reset {name}"),
    };
    let name = name.map(|name| format!("set application_name = 'queue-worker {name}'"));
    DIFFERENT.map(one).into_iter().chain(name).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_connection_is_counted_once_even_if_several_borrowers_find_it() {
        let shared = ConnectionBroker::of_one_worker(3);
        shared.record_death(0);
        shared.record_death(0);
        assert_eq!(shared.deaths(), 1, "both borrowed before it");
        shared.record_death(1);
        assert_eq!(shared.deaths(), 2);
    }

    #[test]
    fn with_few_connections_no_kind_gets_all_and_each_gets_one() {
        for most in 2..=10 {
            let of = ConnectionBroker::of_one_worker(most);
            for permits in [&of.claims, &of.limits, &of.rest, &of.slow] {
                assert!((1..most).contains(&permits.available_permits()), "{most}");
            }
            assert!(most < 4 || of.rest.available_permits() + 2 <= most, "{most}");
        }
    }

    #[test]
    fn all_settings_that_differ_are_set_for_each_borrower() {
        assert_eq!(setting(&Vec::new(), None), "reset synchronous_commit; set lock_timeout = '2s'; reset statement_timeout");
        let settings = vec![("synchronous_commit", "off"), ("lock_timeout", "250ms"), ("statement_timeout", "10s")];
        let set = "set synchronous_commit = 'off'; set lock_timeout = '250ms'; set statement_timeout = '10s'";
        assert_eq!(setting(&settings, None), set);
        assert_eq!(setting(&settings, Some("waiters")), format!("{set}; set application_name = 'queue-worker waiters'"));
    }
}
