//! What `top` asks the database, once a second, and what came of it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use queue_core::{
    Error, JobRef, JobState, Store,
    operate::{self, Figures, Filter, Histogram, JobRecord, Past, WorkerRecord},
};
use sqlx::{ConnectOptions as _, PgConnection, postgres::PgConnectOptions};
use tokio::{sync::watch, time::timeout};

use crate::inert;

/// What is known.
#[derive(Clone, Default)]
pub(super) struct Look {
    pub(super) schema: &'static str,
    /// What was seen last.
    pub(super) seen: Option<Seen>,
    /// Why nothing has been seen since.
    pub(super) away: Option<String>,
}

#[derive(Clone)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) queues: Vec<QueueFigures>,
    /// So many queues and types are not among them.
    pub(super) more: i64,
    pub(super) workers: Vec<WorkerRecord>,
    pub(super) running: Vec<JobRecord>,
    /// Of the last minute, all queues together.
    pub(super) minute: Option<Figures>,
}

/// A queue now, and in the last minute.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueFigures {
    pub(super) name: String,
    pub(super) ready: i64,
    pub(super) later: i64,
    pub(super) running: i64,
    pub(super) dead: i64,
    /// Whether there may be more.
    pub(super) partial: bool,
    pub(super) oldest: Option<Duration>,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) rate: f64,
    pub(super) start: Histogram,
}

/// Between the beginnings of two looks; and a look that takes long is followed by four times its length of rest.
const EVERY: Duration = Duration::from_secs(1);

/// A look that takes longer is given up, and its connection with it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The busiest queues and types that are shown, and the running jobs.
const QUEUES: u16 = 50;
const RUNNING: u32 = 20;

/// Looks until nobody wants to know any more.
pub(super) async fn follow(options: PgConnectOptions, store: Store, tell: watch::Sender<Look>) {
    let options = options.application_name("queue-worker top").disable_statement_logging().options([
        ("statement_timeout", "2s"),
        ("lock_timeout", "500ms"),
        ("default_transaction_read_only", "on"),
    ]);
    let (mut connection, mut seen): (Option<PgConnection>, Option<Seen>) = (None, None);
    loop {
        let began = Instant::now();
        let looked = timeout(PATIENCE, async {
            let mut on = match connection.take() {
                Some(on) => on,
                None => options.connect().await.map_err(Error::Database)?,
            };
            let seen = look(&mut on, store).await?;
            Ok::<_, Error>((on, seen))
        });
        let away = match looked.await {
            Ok(Ok((on, now))) => {
                (connection, seen) = (Some(on), Some(now));
                None
            }
            Ok(Err(error)) => Some(inert::line(&error.to_string())),
            Err(_) => Some(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        if tell.send(Look { schema: store.schema(), seen: seen.clone(), away }).is_err() {
            return;
        }
        let rest = EVERY.saturating_sub(began.elapsed()).max(if connection.is_some() { 4 * began.elapsed() } else { EVERY });
        tokio::time::sleep(rest.min(PATIENCE)).await;
    }
}

/// Each statement has a bound: as those of `stats` and `history`.
async fn look(on: &mut PgConnection, store: Store) -> Result<Seen, Error> {
    let busiest = operate::busiest(&mut *on, store, QUEUES).await?;
    let oldest = operate::oldest_of(&mut *on, store, QUEUES).await?;
    let workers = operate::workers(&mut *on, store).await?;
    let past = Past { last: Duration::from_mins(1), apart: true, ..Past::default() };
    let figures = operate::history(&mut *on, store, &past).await?;
    let minute = operate::history(&mut *on, store, &Past { last: Duration::from_mins(1), ..Past::default() }).await?.pop();
    let filter = Filter { state: Some(JobState::Running), limit: RUNNING, ..Filter::default() };
    let mut running = operate::list(&mut *on, store, &filter).await?.jobs;
    for job in &mut running {
        match JobRef::from_id(job.id).in_store(store).find_without_payload(&mut *on).await {
            Ok(found) => job.progress = found.progress,
            // It is over, and not kept.
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let mut queues: BTreeMap<String, QueueFigures> = BTreeMap::new();
    for count in busiest.counts {
        let queue = queues.entry(count.queue).or_default();
        match count.state {
            JobState::Ready => {
                queue.ready += count.jobs;
                queue.partial |= count.partial;
            }
            JobState::Scheduled | JobState::Blocked => queue.later += count.jobs,
            JobState::Running => queue.running += count.jobs,
            JobState::Dead => queue.dead += count.jobs,
            _ => {}
        }
    }
    for first in oldest {
        queues.entry(first.queue).or_default().oldest = first.waited;
    }
    for one in figures {
        let Some(name) = &one.queue else { continue };
        let queue = queues.entry(name.clone()).or_default();
        queue.completed += one.completed;
        queue.failed += one.failed();
        queue.rate += one.rate();
        queue.start.add(&one.start);
    }
    let named = queues.into_iter().map(|(name, queue)| QueueFigures { name, ..queue });
    Ok(Seen { at: Instant::now(), queues: named.collect(), more: busiest.more, workers, running, minute })
}
