//! Which of several hosts to work on: all are asked at once, and of those that will do one is chosen. Keeps nothing in mind but the last good one.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use queue_core::runner::is_refused_setting;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Row as _, postgres::PgConnectOptions};
use tokio::{task::JoinSet, time::timeout};

use super::{
    address::{Address, Said},
    fresh::ask,
};
use crate::error::{self, Error};

/// The hosts of one database.
#[derive(Clone)]
pub(super) struct Hosts(Arc<Known>);

struct Known {
    address: Address,
    /// The last good one.
    present: Mutex<usize>,
}

/// One that answers, connected to.
pub(super) struct GoodHost {
    /// Its place in the list.
    pub(super) nth: usize,
    /// What connects to it: with a setting of ours, unless a pooler refuses that.
    pub(super) options: PgConnectOptions,
    pub(super) connection: PgConnection,
    said: Said,
}

/// Once one will do, the others have so long to say that they are better.
const OTHERS: Duration = Duration::from_millis(250);

/// So long it may take to say which of two is newer.
const TOLD: Duration = Duration::from_secs(1);

impl Hosts {
    pub(super) fn new(address: Address) -> Self {
        Self(Arc::new(Known { address, present: Mutex::new(0) }))
    }

    pub(super) fn address(&self) -> &Address {
        &self.0.address
    }

    pub(super) fn present(&self) -> usize {
        *self.0.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This one is the last good one.
    pub(super) fn settle_on(&self, nth: usize) {
        *self.0.present.lock().unwrap_or_else(PoisonError::into_inner) = nth;
    }

    /// Where one of them is.
    pub(super) fn place(&self, nth: usize) -> String {
        self.0.address.hosts.get(nth).map(host).unwrap_or_default()
    }

    /// The one to work on: of those that will do the last good one, or else the first in the list. If several take writes and one is to, the one that was
    /// promoted last: the others do not know yet, or will never know, that they are not the primary any more.
    ///
    /// # Errors
    /// [`Error::NoHost`], with what each of them said; of a single one that is not there [`Error::Connect`].
    pub(super) async fn look(&self) -> Result<GoodHost, Error> {
        self.look_or_take(false, |_| None).await
    }

    /// The same while the last good one is well: however slow it is, it is waited for, and left only for a better one.
    pub(super) async fn look_for_better(&self) -> Result<GoodHost, Error> {
        self.look_or_take(true, |_| None).await
    }

    /// The same; if none will do, one that answered, for whoever waits until it does.
    pub(super) async fn look_patiently(&self) -> Result<GoodHost, Error> {
        self.look_or_take(false, Vec::pop).await
    }

    async fn look_or_take(&self, is_well: bool, take: impl FnOnce(&mut Vec<GoodHost>) -> Option<GoodHost>) -> Result<GoodHost, Error> {
        let (wanted, present) = (self.0.address.wanted, self.present());
        let (answered, away) = self.ask_all(is_well.then_some(present)).await;
        let (mut fit, mut others): (Vec<_>, Vec<_>) = answered.into_iter().partition(|host| wanted.takes(host.said));
        if fit.is_empty() {
            let why = self.none_will_do(&others, away);
            let taken = take(&mut others);
            leave(others).await;
            return taken.ok_or(why);
        }
        if fit.len() > 1 && wanted.is_one() {
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
        // The best is the last.
        fit.sort_by_key(|host| std::cmp::Reverse((wanted.prefers_other(host.said), host.nth != present, host.nth)));
        let best = fit.pop();
        others.extend(fit);
        leave(others).await;
        best.ok_or_else(|| self.none_will_do(&[], Vec::new()))
    }

    /// Those that answered, and why the others did not. Does not wait for one that is silent once another will do, unless it is this one.
    async fn ask_all(&self, mut awaited: Option<usize>) -> (Vec<GoodHost>, Vec<(usize, sqlx::Error)>) {
        let Address { hosts, wanted, patience } = &self.0.address;
        let mut asking = JoinSet::new();
        for (nth, options) in hosts.iter().cloned().enumerate() {
            let patience = *patience;
            asking.spawn(async move { (nth, timeout(patience, meet(options)).await.unwrap_or_else(|_| Err(away()))) });
        }
        let (mut answered, mut away, mut any_fit) = (Vec::new(), Vec::new(), false);
        let mut until = Instant::now() + *patience + OTHERS;
        while let Ok(Some(answer)) = tokio::time::timeout_at(until.into(), asking.join_next()).await {
            let Ok((nth, answer)) = answer else { continue };
            awaited = awaited.filter(|awaited| *awaited != nth);
            match answer {
                Ok((options, connection, said)) => {
                    any_fit |= wanted.takes(said);
                    answered.push(GoodHost { nth, options, connection, said });
                }
                Err(error) => away.push((nth, error)),
            }
            if any_fit && awaited.is_none() {
                until = until.min(Instant::now() + OTHERS);
            }
        }
        (answered, away)
    }

    fn none_will_do(&self, answered: &[GoodHost], mut away: Vec<(usize, sqlx::Error)>) -> Error {
        if self.0.address.hosts.len() == 1
            && let Some((nth, source)) = away.pop()
        {
            return Error::Connect { place: place(&self.0.address.hosts[nth]), source };
        }
        let silent = away.iter().map(|(nth, error)| (*nth, format!("does not answer ({})", error::said(error))));
        let mut each: Vec<_> = answered.iter().map(|host| (host.nth, host.said.text().to_owned())).chain(silent).collect();
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

/// Connects, and asks what the server is. No statement of ours is compiled: that takes the server longer than the statement. Where a pooler refuses such a
/// setting, or the driver's, they are left out.
async fn meet(options: PgConnectOptions) -> sqlx::Result<(PgConnectOptions, PgConnection, Said)> {
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
    let said = ask(&mut connection).await?;
    Ok((options, connection, said))
}

/// Zero where the server does not tell: then it is as good as any other of the kind.
async fn timeline(connection: &mut PgConnection) -> i64 {
    let told = async {
        let row = sqlx::raw_sql(include_str!("../../sql/timeline.sql")).fetch_one(connection).await?;
        row.try_get::<Option<i64>, _>(0)
    };
    timeout(TOLD, told).await.ok().and_then(Result::ok).flatten().unwrap_or(0)
}

fn away() -> sqlx::Error {
    sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())
}

/// A server's host and port.
fn host(options: &PgConnectOptions) -> String {
    let host = options.get_socket().map_or_else(|| options.get_host().to_owned(), |socket| socket.display().to_string());
    if host.contains(':') { format!("[{host}]:{}", options.get_port()) } else { format!("{host}:{}", options.get_port()) }
}

/// Where the options lead, without user and password.
pub(super) fn place(options: &PgConnectOptions) -> String {
    format!("the database `{}` at {}", options.get_database().unwrap_or("the user's default"), host(options))
}
