//! Chooses one of the hosts in the database URL. All hosts are queried concurrently. A host qualifies if it meets the requirements in the
//! URL. Only the last choice is stored between searches.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use queue_core::runner::is_refused_setting;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Row as _, postgres::PgConnectOptions};
use tokio::{task::JoinSet, time::timeout};

use super::{
    address::{Address, ServerState},
    fresh::query_server_state,
};
use crate::error::{self, Error};

/// Hosts of a database, and the last chosen host.
#[derive(Clone)]
pub(super) struct Hosts(Arc<HostsState>);

struct HostsState {
    address: Address,
    /// Index of the last chosen host.
    present: Mutex<usize>,
}

/// Host that responded, and the open connection to the host.
pub(super) struct GoodHost {
    /// Index of the host in the database URL.
    pub(super) nth: usize,
    /// Connection options of the host. The options contain `jit=off`, unless a pooler rejects settings.
    pub(super) options: PgConnectOptions,
    pub(super) connection: PgConnection,
    state: ServerState,
}

/// Time allowed for the other hosts to respond once a host has qualified.
const OTHERS: Duration = Duration::from_millis(250);

/// Timeout for querying a server's timeline. The timelines show which server was promoted most recently.
const TIMELINE_TIMEOUT: Duration = Duration::from_secs(1);

impl Hosts {
    pub(super) fn new(address: Address) -> Self {
        Self(Arc::new(HostsState { address, present: Mutex::new(0) }))
    }

    pub(super) fn address(&self) -> &Address {
        &self.0.address
    }

    pub(super) fn present(&self) -> usize {
        *self.0.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the host with index `nth` as the last choice.
    pub(super) fn set_present(&self, nth: usize) {
        *self.0.present.lock().unwrap_or_else(PoisonError::into_inner) = nth;
    }

    /// Returns the name and port of the host with index `nth`.
    pub(super) fn place(&self, nth: usize) -> String {
        self.0.address.hosts.get(nth).map(host).unwrap_or_default()
    }

    /// Returns the host to use.
    ///
    /// Among the hosts that qualify, the last choice is preferred, then the first host in the URL. With `prefer-standby`, standbys are
    /// preferred to all other hosts. If the URL requires a primary or a host that accepts writes, the most recently promoted host that
    /// qualifies is returned, because a former primary may not have detected its replacement yet.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoHost`] with the response of each host if no host qualifies. Returns [`Error::Connect`] if the URL contains a
    /// single host that is unreachable.
    pub(super) async fn find(&self) -> Result<GoodHost, Error> {
        self.find_or_take(false, |_| None).await
    }

    /// Finds a host like [`Hosts::find`] while the last choice still works. Waits for the last chosen host even if it responds slowly, so
    /// that only a better host replaces it.
    pub(super) async fn find_better(&self) -> Result<GoodHost, Error> {
        self.find_or_take(true, |_| None).await
    }

    /// Finds a host like [`Hosts::find`]. If no host qualifies, returns any host that responded. The caller then waits until this host
    /// qualifies.
    pub(super) async fn find_patiently(&self) -> Result<GoodHost, Error> {
        self.find_or_take(false, Vec::pop).await
    }

    async fn find_or_take(&self, is_well: bool, take: impl FnOnce(&mut Vec<GoodHost>) -> Option<GoodHost>) -> Result<GoodHost, Error> {
        let (target, present) = (self.0.address.wanted, self.present());
        let (answered, away) = self.ask_all(is_well.then_some(present)).await;
        let (mut fit, mut others): (Vec<_>, Vec<_>) = answered.into_iter().partition(|host| target.takes(host.state));
        if fit.is_empty() {
            let why = self.no_host_error(&others, away);
            let taken = take(&mut others);
            leave(others).await;
            return taken.ok_or(why);
        }
        if fit.len() > 1 && target.is_one() {
            let (mut newest, mut known) = (0, Vec::with_capacity(fit.len()));
            for mut host in fit {
                let timeline = timeline(&mut host.connection).await;
                newest = timeline.max(newest);
                known.push((timeline, host));
            }
            let (newer, older): (Vec<_>, Vec<_>) = known.into_iter().partition(|(timeline, _)| *timeline == newest);
            fit = newer.into_iter().map(|(_, host)| host).collect();
            others.extend(older.into_iter().map(|(_, host)| host));
        }
        // Sorts the hosts so that the preferred host is last.
        fit.sort_by_key(|host| std::cmp::Reverse((target.prefers_other(host.state), host.nth != present, host.nth)));
        let best = fit.pop();
        others.extend(fit);
        leave(others).await;
        best.ok_or_else(|| self.no_host_error(&[], Vec::new()))
    }

    /// Queries all hosts. Once a host has qualified, the other hosts have [`OTHERS`] to respond. The host with index `awaited` always has
    /// the full timeout.
    async fn ask_all(&self, mut awaited: Option<usize>) -> (Vec<GoodHost>, Vec<(usize, sqlx::Error)>) {
        let Address { hosts, wanted, patience } = &self.0.address;
        let mut asking = JoinSet::new();
        for (nth, options) in hosts.iter().cloned().enumerate() {
            let patience = *patience;
            asking.spawn(async move { (nth, timeout(patience, connect_and_query(options)).await.unwrap_or_else(|_| Err(away()))) });
        }
        let (mut answered, mut away, mut any_fit) = (Vec::new(), Vec::new(), false);
        let mut until = Instant::now() + *patience + OTHERS;
        while let Ok(Some(answer)) = tokio::time::timeout_at(until.into(), asking.join_next()).await {
            let Ok((nth, answer)) = answer else { continue };
            awaited = awaited.filter(|awaited| *awaited != nth);
            match answer {
                Ok((options, connection, state)) => {
                    any_fit |= wanted.takes(state);
                    answered.push(GoodHost { nth, options, connection, state });
                }
                Err(error) => away.push((nth, error)),
            }
            if any_fit && awaited.is_none() {
                until = until.min(Instant::now() + OTHERS);
            }
        }
        (answered, away)
    }

    fn no_host_error(&self, answered: &[GoodHost], mut away: Vec<(usize, sqlx::Error)>) -> Error {
        if self.0.address.hosts.len() == 1
            && let Some((nth, source)) = away.pop()
        {
            return Error::Connect { place: place(&self.0.address.hosts[nth]), source };
        }
        let silent = away.iter().map(|(nth, error)| (*nth, format!("does not answer ({})", error::error_message(error))));
        let mut each: Vec<_> = answered.iter().map(|host| (host.nth, host.state.text().to_owned())).chain(silent).collect();
        each.sort();
        let why = each.into_iter().map(|(nth, text)| format!("{} {text}", self.place(nth))).collect::<Vec<_>>().join(", ");
        Error::NoHost { why, standby: !answered.is_empty() }
    }
}

async fn leave(hosts: Vec<GoodHost>) {
    for host in hosts {
        let _ = timeout(OTHERS, host.connection.close()).await;
    }
}

/// Connects and queries the server's state. Disables JIT compilation, because compilation would take longer than the query. If a pooler
/// rejects settings, opens the connection without settings.
async fn connect_and_query(options: PgConnectOptions) -> sqlx::Result<(PgConnectOptions, PgConnection, ServerState)> {
    let own = options.clone().options([("jit", "off")]);
    let (options, mut connection) = match own.connect().await {
        Ok(connection) => (own, connection),
        Err(error) if is_refused_setting(&error) => {
            let plain = options.extra_float_digits(None);
            let connection = plain.connect().await?;
            (plain, connection)
        }
        Err(error) => return Err(error),
    };
    let state = query_server_state(&mut connection).await?;
    Ok((options, connection, state))
}

/// Returns the server's timeline, or zero if the server does not report a timeline. All servers without a timeline therefore count as
/// equally recent.
async fn timeline(connection: &mut PgConnection) -> i64 {
    let query = async {
        let row = sqlx::raw_sql(include_str!("../../sql/timeline.sql")).fetch_one(connection).await?;
        row.try_get::<Option<i64>, _>(0)
    };
    timeout(TIMELINE_TIMEOUT, query).await.ok().and_then(Result::ok).flatten().unwrap_or(0)
}

fn away() -> sqlx::Error {
    sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())
}

/// Returns the host and port in the options.
fn host(options: &PgConnectOptions) -> String {
    let host = options.get_socket().map_or_else(|| options.get_host().to_owned(), |socket| socket.display().to_string());
    if host.contains(':') { format!("[{host}]:{}", options.get_port()) } else { format!("{host}:{}", options.get_port()) }
}

/// Returns the database and host in the options, without user and password.
pub(super) fn place(options: &PgConnectOptions) -> String {
    format!("the database `{}` at {}", options.get_database().unwrap_or("the user's default"), host(options))
}
