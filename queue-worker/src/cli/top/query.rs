//! Queries of the `top` command. Each query has its own transaction, timeout and schedule. A failed query does not stop the other
//! queries, and a slow query runs less often.

use std::time::{Duration, Instant};

use queue_core::{
    Error, JobRef, JobState, Queue, Store,
    operate::{Filter, HistoryRange, JobRecord},
};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::{sync::watch, time::timeout};

use super::state::{Panel, QueryResult, RefusedQuery, StoreSnapshot, TopState};
use crate::{escape, program::commands};

/// Minimum interval between the starts of two runs of the same query. After a slow run, the pause before the next run is [`REST_FACTOR`]
/// times the run's duration.
const INTERVAL: Duration = Duration::from_secs(1);
const REST_FACTOR: u32 = 4;

/// Client-side timeout of a query. After a timeout, the connection is dropped. The server cancels each statement after two seconds.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Statements that begin a read-only transaction with timeouts, sent in one round trip. The timeouts end with the transaction, so they
/// also work behind a connection pooler.
const BEGIN: &str = "begin isolation level read committed, read only; set local statement_timeout = '2s'; set local lock_timeout = '500ms'; \
                     set local idle_in_transaction_session_timeout = '10s'";

/// Maximum number of queue and type pairs whose jobs are counted. Also the maximum number of queues whose oldest job is loaded.
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

    /// Returns a label for the queried data. The label is shown next to the error if the query fails.
    fn what(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Oldest => "oldest",
            Self::Minute => "last minute",
            Self::Workers => "workers",
            Self::Running => "jobs",
        }
    }

    /// Runs the query. Each statement reads a bounded number of rows.
    async fn query(self, on: &mut PgConnection, store: Store) -> Result<QueryResult, Error> {
        let queue = Queue::on(&mut *on).store(store);
        let past = HistoryRange { last: Duration::from_mins(1), ..HistoryRange::default() };
        Ok(match self {
            Self::Counts => QueryResult::Counts(queue.busiest(MAX_QUEUES).await?),
            Self::Oldest => QueryResult::Oldest(queue.oldest_of(MAX_QUEUES).await?),
            Self::Minute => {
                let apart = queue.history(&HistoryRange { apart: true, ..past.clone() }).await?;
                QueryResult::Minute { apart, together: queue.history(&past).await? }
            }
            Self::Workers => QueryResult::Workers(queue.workers().await?),
            Self::Running => QueryResult::Running(running(on, store).await?),
        })
    }
}

async fn running(on: &mut PgConnection, store: Store) -> Result<Vec<JobRecord>, Error> {
    let filter = Filter { state: Some(JobState::Running), limit: MAX_RUNNING, ..Filter::default() };
    let mut running = Queue::on(&mut *on).store(store).jobs().matching(&filter).list().await?.jobs;
    for job in &mut running {
        match JobRef::from_id(job.id).in_store(store).find_without_payload(&mut *on).await {
            Ok(found) => job.progress = found.progress,
            // The job has finished since it was listed, and its record was not kept.
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(running)
}

/// Query with its schedule and last result.
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
    // In the first round, each result is shown immediately. Later rounds update the screen once per round.
    let mut is_first = true;
    loop {
        // The options are read in each round, because the pool may have switched to another host.
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

/// Combines the query results. Returns `None` before the first result or error.
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
    /// Runs the query and schedules its next run. A rejected statement or a timeout is stored as the query's error. Returns an error if
    /// the database is unavailable.
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
            // 57014 (query canceled) does not match, because the connection is still usable after a statement timeout.
            database_error.code().is_none_or(|code| code.starts_with("57P") || code.starts_with("08") || code == "25P03")
        }
        Error::Database(error) => !matches!(error, sqlx::Error::RowNotFound | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)),
        _ => false,
    }
}
