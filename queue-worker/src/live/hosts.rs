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

/// One that will do, connected to.
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
        let (mut fit, why) = self.ask_all().await;
        if fit.is_empty() {
            return Err(self.none_will_do(why));
        }
        let (wanted, present) = (self.0.address.wanted, self.present());
        let mut newest = 0;
        if fit.len() > 1 && wanted.is_one() {
            let mut known = Vec::with_capacity(fit.len());
            for mut found in fit {
                let timeline = timeline(&mut found.connection).await;
                newest = timeline.max(newest);
                known.push((timeline, found));
            }
            fit = known.into_iter().filter(|(timeline, _)| *timeline == newest).map(|(_, found)| found).collect();
        }
        fit.sort_by_key(|found| (wanted.prefers_other(found.said), found.nth != present, found.nth));
        let mut fit = fit.into_iter();
        let chosen = fit.next();
        for other in fit {
            let _ = timeout(OTHERS, other.connection.close()).await;
        }
        chosen.ok_or_else(|| self.none_will_do(Vec::new()))
    }

    /// Those that will do, and what the others said. Does not wait for one that is silent once another will do.
    async fn ask_all(&self) -> (Vec<GoodHost>, Vec<(usize, Refused)>) {
        let Address { hosts, wanted, patience } = &self.0.address;
        let mut asking = JoinSet::new();
        for (nth, options) in hosts.iter().cloned().enumerate() {
            let patience = *patience;
            asking.spawn(async move { (nth, timeout(patience, meet(options)).await.unwrap_or_else(|_| Err(away()))) });
        }
        let (mut fit, mut why, mut until): (Vec<GoodHost>, _, _) = (Vec::new(), Vec::new(), Instant::now() + *patience + OTHERS);
        while let Ok(Some(answer)) = tokio::time::timeout_at(until.into(), asking.join_next()).await {
            let Ok((nth, answer)) = answer else { continue };
            match answer {
                Ok((options, connection, said)) if wanted.takes(said) => {
                    fit.push(GoodHost { nth, options, connection, said });
                    until = until.min(Instant::now() + OTHERS);
                }
                Ok((_, connection, said)) => {
                    why.push((nth, Refused::Said(said)));
                    let _ = timeout(OTHERS, connection.close()).await;
                }
                Err(error) => why.push((nth, Refused::Away(error))),
            }
        }
        why.sort_by_key(|(nth, _)| *nth);
        (fit, why)
    }

    fn none_will_do(&self, mut why: Vec<(usize, Refused)>) -> Error {
        let standby = why.iter().any(|(_, refused)| matches!(refused, Refused::Said(_)));
        if self.0.address.hosts.len() == 1
            && let Some((_, Refused::Away(_))) = why.first()
            && let Some((nth, Refused::Away(source))) = why.pop()
        {
            return Error::Connect { place: place(&self.0.address.hosts[nth]), source };
        }
        let each = why.iter().map(|(nth, refused)| format!("{} {}", self.place(*nth), refused.text()));
        Error::NoHost { why: each.collect::<Vec<_>>().join(", "), standby }
    }
}

/// Why a host will not do.
enum Refused {
    Said(Said),
    Away(sqlx::Error),
}

impl Refused {
    fn text(&self) -> String {
        match self {
            Self::Said(Said { standby: true, .. }) => "is a standby".to_owned(),
            Self::Said(Said { read_only: true, .. }) => "takes no writes".to_owned(),
            Self::Said(_) => "is a primary".to_owned(),
            Self::Away(error) => format!("does not answer ({})", error::said(error)),
        }
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
