//! Queries of `top`. Each query has its own transaction, interval and timeout, so that a failed or slow query does not delay the others.

use std::time::{Duration, Instant};

use queue_core::{
    Error, JobRef, JobState, Store,
    operate::{self, Filter, JobRecord, Past},
};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::{sync::watch, time::timeout};

use super::state::{Panel, QueryResult, RefusedQuery, StoreSnapshot, TopState};
use crate::{escape, program::commands};

/// Interval between the starts of two runs of a query. After a slow run, the query rests for [`REST_FACTOR`] times its duration.
const INTERVAL: Duration = Duration::from_secs(1);
const REST_FACTOR: u32 = 4;

/// Timeout of a query, after which the connection is dropped. The server already cancels statements after two seconds.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Statements that begin a read-only transaction with timeouts, in one round trip. The settings end with the transaction, so that they work
/// behind a pooler.
const BEGIN: &str = "begin isolation level read committed, read only; set local statement_timeout = '2s'; set local lock_timeout = '500ms'; \
                     set local idle_in_transaction_session_timeout = '10s'";

/// Maximum number of queues and types shown.
const MAX_QUEUES: u16 = 50;
const MAX_RUNNING: u32 = 20;

#[derive(Clone, Copy)]
enum TopQuery {
    Counts,
    Oldest,
    Minute,
    Workers,
    Running,
}

impl TopQuery {
    const ALL: [Self; 5] = [Self::Counts, Self::Oldest, Self::Minute, Self::Workers, Self::Running];

    fn part(self) -> Panel {
        match self {
            Self::Counts | Self::Oldest | Self::Minute => Panel::Queues,
            Self::Workers => Panel::Workers,
            Self::Running => Panel::Running,
        }
    }

    /// Returns the name of the data that the query loads.
    fn what(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Oldest => "oldest",
            Self::Minute => "last minute",
            Self::Workers => "workers",
            Self::Running => "jobs",
        }
    }

    /// Runs the query. Each statement is bounded, like those of `stats` and `history`.
    async fn query(self, on: &mut PgConnection, store: Store) -> Result<QueryResult, Error> {
        let past = Past { last: Duration::from_mins(1), ..Past::default() };
        Ok(match self {
            Self::Counts => QueryResult::Counts(operate::busiest(on, store, MAX_QUEUES).await?),
            Self::Oldest => QueryResult::Oldest(operate::oldest_of(on, store, MAX_QUEUES).await?),
            Self::Minute => {
                let apart = operate::history(&mut *on, store, &Past { apart: true, ..past.clone() }).await?;
                QueryResult::Minute { apart, together: operate::history(on, store, &past).await? }
            }
            Self::Workers => QueryResult::Workers(operate::workers(on, store).await?),
            Self::Running => QueryResult::Running(running(on, store).await?),
        })
    }
}

async fn running(on: &mut PgConnection, store: Store) -> Result<Vec<JobRecord>, Error> {
    let filter = Filter { state: Some(JobState::Running), limit: MAX_RUNNING, ..Filter::default() };
    let mut running = operate::list(&mut *on, store, &filter).await?.jobs;
    for job in &mut running {
        match JobRef::from_id(job.id).in_store(store).find_without_payload(&mut *on).await {
            Ok(found) => job.progress = found.progress,
            // The job has finished and was not kept.
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(running)
}

/// Query with its schedule and its last result.
struct ScheduledQuery {
    question: TopQuery,
    due: Instant,
    answer: Option<(Instant, QueryResult)>,
    refused: Option<String>,
}

/// Runs the queries until the receiver is dropped.
pub(super) async fn poll_store(pool: PgPool, store: Store, sender: watch::Sender<TopState>) {
    let mut all = TopQuery::ALL.map(|question| ScheduledQuery { question, due: Instant::now(), answer: None, refused: None });
    let mut connection: Option<PgConnection> = None;
    // In the first round, each result is shown immediately. Later rounds update the screen once.
    let mut is_first = true;
    loop {
        // The options are read again, because the pool may use another host by now.
        let options = (*pool.connect_options()).clone().application_name("queue-worker top").disable_statement_logging();
        let mut away = None;
        for at in 0..all.len() {
            let query = &mut all[at];
            if query.due > Instant::now() {
                continue;
            }
            if let Err(why) = query.run(&mut connection, &options, store).await {
                away = Some(why);
                break;
            }
            if is_first && sender.send(TopState { schema: store.schema(), seen: snapshot(&all), away: None }).is_err() {
                return;
            }
        }
        is_first = false;
        let is_away = away.is_some();
        if sender.send(TopState { schema: store.schema(), seen: snapshot(&all), away }).is_err() {
            return;
        }
        let next = if is_away { None } else { all.iter().map(|query| query.due).min() };
        tokio::time::sleep_until(next.unwrap_or_else(|| Instant::now() + INTERVAL).into()).await;
    }
}

/// Returns the combined results of the queries, if there are any.
fn snapshot(all: &[ScheduledQuery]) -> Option<StoreSnapshot> {
    let at = all.iter().filter_map(|query| query.answer.as_ref().map(|(at, _)| *at)).max();
    let refused = all.iter().filter_map(|query| {
        let since = query.answer.as_ref().map(|(at, _)| *at);
        Some(RefusedQuery { part: query.question.part(), what: query.question.what(), why: query.refused.clone()?, since })
    });
    let refused: Vec<RefusedQuery> = refused.collect();
    let is_any = at.is_some() || !refused.is_empty();
    is_any.then(|| {
        StoreSnapshot::of(at.unwrap_or_else(Instant::now), all.iter().filter_map(|query| Some(&query.answer.as_ref()?.1)), refused)
    })
}

impl ScheduledQuery {
    /// Runs the query and schedules its next run. An error reported by the server becomes the query's result. Returns an error if the
    /// database is unavailable.
    async fn run(&mut self, connection: &mut Option<PgConnection>, options: &PgConnectOptions, store: Store) -> Result<(), String> {
        let began = Instant::now();
        let mut on = match connection.take() {
            Some(on) => on,
            None => match timeout(QUERY_TIMEOUT, options.connect()).await {
                Ok(connected) => connected.map_err(|error| escape::line(&Error::Database(error).to_string()))?,
                Err(_) => return Err(format!("no connection within {} s", QUERY_TIMEOUT.as_secs())),
            },
        };
        let answered = timeout(QUERY_TIMEOUT, async {
            let mut tx = on.begin_with(BEGIN).await.map_err(Error::Database)?;
            let answer = self.question.query(&mut tx, store).await;
            tx.rollback().await.map_err(Error::Database)?;
            answer
        });
        let answered = answered.await;
        self.due = began + INTERVAL.max((1 + REST_FACTOR) * began.elapsed());
        match answered {
            Ok(Ok(answer)) => (self.answer, self.refused) = (Some((Instant::now(), answer)), None),
            Ok(Err(error)) if is_lost(&error) => return Err(escape::line(&error.to_string())),
            Ok(Err(error)) => self.refused = Some(escape::line(&commands(&error.to_string()))),
            Err(_) => {
                self.refused = Some(format!("no answer within {} s", QUERY_TIMEOUT.as_secs()));
                return Ok(());
            }
        }
        *connection = Some(on);
        Ok(())
    }
}

/// Returns whether the error means that the connection is unusable.
fn is_lost(error: &Error) -> bool {
    match error {
        Error::Database(sqlx::Error::Database(database_error)) => {
            // 57014 is not included: after a statement timeout, the connection is still usable.
            database_error.code().is_none_or(|code| code.starts_with("57P") || code.starts_with("08") || code == "25P03")
        }
        Error::Database(error) => !matches!(error, sqlx::Error::RowNotFound | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)),
        _ => false,
    }
}
