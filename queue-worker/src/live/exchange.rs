//! Connections that loops share. A loop has one for the length of a statement, or of a transaction, and gives it back.
//!
//! Those of one worker are as many as its loops need at once, for most of them have little to say. Those of many stores are for the
//! loops of all; each store has no more than a few at once, so that one whose statements hang keeps none from the others.

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
    shelf::{By, Idle, Lending, Made, Part, Settings, Shelf},
};

/// The shared connections to one database.
pub(crate) struct Exchange {
    purpose: &'static str,
    /// Whether one worker has them for itself.
    of_one: bool,
    most: Mutex<usize>,
    room: Arc<Semaphore>,
    shelf: Mutex<Shelf>,
    /// Told whenever one is given back.
    returned: Notify,
    /// How often one was found dead. Whoever remembers what an earlier one said may remember another server.
    deaths: AtomicU64,
}

/// What one store borrows by, or one worker.
#[derive(Clone)]
pub(crate) struct Borrower {
    exchange: Arc<Exchange>,
    /// For the loops that only claim.
    claims: Arc<Semaphore>,
    /// For those that claim under limits: they wait for locks.
    limits: Arc<Semaphore>,
    /// For all but those that claim and settle.
    rest: Arc<Semaphore>,
    /// For those that take long.
    slow: Arc<Semaphore>,
    number: u64,
}

/// A connection that is lent.
pub(super) struct Lent {
    pub(super) connection: PgConnection,
    pub(super) to: Arc<PgConnectOptions>,
    pub(super) since: Instant,
    pub(super) terms: Terms,
    /// It was made for this.
    pub(super) is_fresh: bool,
}

/// What a connection is lent on: what it takes up meanwhile, and whether it is set as its borrower wants it.
pub(super) struct Terms {
    /// A pooler's takes none of our settings: what is set there is set for whoever has its server next.
    takes_settings: bool,
    made: Made,
    _places: Places,
}

/// Places among those that may have one at once: of the borrower's own kind, and of all.
type Places = (Vec<OwnedSemaphorePermit>, OwnedSemaphorePermit);

/// A store has no more of them at once.
const EACH: usize = 4;

/// Statements of many stores are kept prepared on one connection.
const STATEMENTS: usize = 500;

/// What settings of loops differ in.
const DIFFERENT: [&str; 3] = ["synchronous_commit", "lock_timeout", "statement_timeout"];

/// Nobody waits for a lock for longer on a connection that others wait for.
const LOCKED: &str = "2s";

impl Exchange {
    /// Of so many connections at most, for many stores.
    pub(crate) fn new(purpose: &'static str, most: usize) -> Arc<Self> {
        Self::of(purpose, most, false)
    }

    fn of(purpose: &'static str, most: usize, of_one: bool) -> Arc<Self> {
        let (room, shelf) = (Arc::new(Semaphore::new(most)), Mutex::default());
        Arc::new(Self { purpose, of_one, most: Mutex::new(most), room, shelf, returned: Notify::new(), deaths: AtomicU64::new(0) })
    }

    /// What one worker borrows by that has these for itself, two at least. Whatever hangs leaves one to those that claim and one to those that settle, if
    /// there are three; and one to both if there are two.
    pub(crate) fn of_one_worker(most: usize) -> Borrower {
        let most = most.max(2);
        let at_once = |places: usize| Arc::new(Semaphore::new(places.max(1)));
        let (claims, limits, rest) = (at_once(most - 1), at_once(most.saturating_sub(4)), at_once(most - 2));
        let slow = at_once(if most < 4 { 1 } else { 2 });
        Borrower { exchange: Self::of("loops", most, true), claims, limits, rest, slow, number: 0 }
    }

    /// From now on there may be so many, if that is more than before.
    pub(crate) fn widen(&self, most: usize) {
        let mut before = self.most.lock().unwrap_or_else(PoisonError::into_inner);
        self.room.add_permits(most.saturating_sub(*before));
        *before = most.max(*before);
    }

    /// For one more store. It leaves some to others, where there are more than two.
    pub(crate) fn borrower(self: &Arc<Self>, number: u64) -> Borrower {
        let own = Arc::new(Semaphore::new(self.most().saturating_sub(2).clamp(2, EACH)));
        // All of a store are counted together.
        let [claims, limits, rest, slow] = std::array::from_fn(|_| Arc::clone(&own));
        Borrower { exchange: Arc::clone(self), claims, limits, rest, slow, number }
    }

    fn most(&self) -> usize {
        *self.most.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The best that there is for this borrower; or that one is to be made.
    async fn take(&self, by: By, settings: &Settings, now: &PgConnectOptions) -> Result<Box<Idle>, Made> {
        let until = Instant::now() + Part::of(by.1).patience();
        loop {
            let returned = self.returned.notified();
            let found = {
                let (mut shelf, most) = (self.shelf(), self.most());
                if self.of_one {
                    shelf.of_one(by, settings, now, most, Instant::now() < until)
                } else {
                    shelf.of_many(by, settings, now, most)
                }
            };
            match found {
                Lending::Idle(idle) => return Ok(idle),
                Lending::Make(made) => return Err(made),
                Lending::Wait => drop(timeout_at(until.into(), returned).await),
            }
        }
    }
}

impl Borrower {
    /// Lends a connection with these settings, once there is one.
    pub(super) async fn lend(&self, pool: &PgPool, purpose: &'static str, settings: &Settings) -> sqlx::Result<Lent> {
        let (places, exchange) = (self.places(Part::of(purpose)).await?, &*self.exchange);
        let (to, by) = (pool.connect_options(), (self.number, purpose));
        let name = exchange.of_one.then_some(purpose);
        let (mut lent, is_set) = match exchange.take(by, settings, &to).await {
            Ok(idle) => {
                let Idle { connection, to, since, settings: set, takes_settings, by: last, made, .. } = *idle;
                let is_set = set == *settings && (name.is_none() || last == by);
                (Lent { connection, to, since, terms: Terms { takes_settings, made, _places: places }, is_fresh: false }, is_set)
            }
            Err(made) => {
                let like = (name.unwrap_or(exchange.purpose), Some(STATEMENTS));
                let (to, mut connection) = connect_along(pool, like, &[mark()]).await?;
                let takes_settings = is_marked(&mut connection).await?;
                let terms = Terms { takes_settings, made, _places: places };
                (Lent { connection, to, since: Instant::now(), terms, is_fresh: true }, false)
            }
        };
        if !is_set && lent.terms.takes_settings {
            sqlx::raw_sql(AssertSqlSafe(setting(settings, name))).execute(&mut lent.connection).await?;
        }
        Ok(lent)
    }

    /// Waits until this part may have one more.
    async fn places(&self, part: Part) -> sqlx::Result<Places> {
        let kinds: &[_] = match part {
            Part::Settle if self.exchange.of_one => &[],
            Part::Limits if self.exchange.of_one => &[&self.limits, &self.rest],
            Part::Claim => &[&self.claims],
            Part::Slow => &[&self.slow],
            Part::Settle | Part::Limits | Part::Rest => &[&self.rest],
        };
        let closed = |_| sqlx::Error::PoolClosed;
        let mut own = Vec::with_capacity(kinds.len());
        for kind in kinds {
            own.push(Arc::clone(kind).acquire_owned().await.map_err(closed)?);
        }
        Ok((own, Arc::clone(&self.exchange.room).acquire_owned().await.map_err(closed)?))
    }

    /// How often one was found dead.
    pub(super) fn deaths(&self) -> u64 {
        self.exchange.deaths.load(SeqCst)
    }

    /// One was found dead that was lent after so many deaths. Those that lie idle may be as dead, and each would be waited for.
    pub(super) fn bury(&self, deaths: u64) {
        let is_first = self.exchange.deaths.compare_exchange(deaths, deaths + 1, SeqCst, SeqCst).is_ok();
        if is_first {
            self.exchange.shelf().forget_idle();
        }
    }

    /// Takes back one that can be used again.
    pub(super) fn give_back(&self, Lent { connection, to, since, terms, .. }: Lent, purpose: &'static str, settings: &Settings) {
        let Terms { takes_settings, made, _places } = terms;
        let (by, at, settings) = ((self.number, purpose), Instant::now(), settings.clone());
        let idle = Idle { connection, to, since, settings, takes_settings, by, at, made };
        self.exchange.shelf().put(idle, self.exchange.of_one);
        self.exchange.returned.notify_one();
    }
}

/// Sets all that connections differ in, and how the server is to call it.
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
    fn a_death_counts_once_however_many_meet_it() {
        let shared = Exchange::of_one_worker(3);
        shared.bury(0);
        shared.bury(0);
        assert_eq!(shared.deaths(), 1, "both had theirs before it");
        shared.bury(1);
        assert_eq!(shared.deaths(), 2);
    }

    #[test]
    fn of_few_connections_no_kind_has_all_and_none_has_no_place() {
        for most in 2..=10 {
            let of = Exchange::of_one_worker(most);
            for places in [&of.claims, &of.limits, &of.rest, &of.slow] {
                assert!((1..most).contains(&places.available_permits()), "{most}");
            }
            assert!(most < 4 || of.rest.available_permits() + 2 <= most, "{most}");
        }
    }

    #[test]
    fn whatever_connections_differ_in_is_set_for_each_borrower() {
        assert_eq!(setting(&Vec::new(), None), "reset synchronous_commit; set lock_timeout = '2s'; reset statement_timeout");
        let settings = vec![("synchronous_commit", "off"), ("lock_timeout", "250ms"), ("statement_timeout", "10s")];
        let set = "set synchronous_commit = 'off'; set lock_timeout = '250ms'; set statement_timeout = '10s'";
        assert_eq!(setting(&settings, None), set);
        assert_eq!(setting(&settings, Some("tell")), format!("{set}; set application_name = 'queue-worker tell'"));
    }
}
