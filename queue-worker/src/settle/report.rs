//! Writes what running jobs say of themselves: all that has changed, of all jobs of the process, in one statement.
//!
//! At most every 250 ms, but at once for whom somebody waits: a checkpoint, or an attempt that has ended. While one statement is in the air
//! others collect, so many jobs that end together share the next one. What the database refuses is a lost lease. This file decides nothing
//! about jobs.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{
    JobId, Store,
    runner::{Report, ReportEntry, Written},
};
use tokio::{
    sync::{Mutex, mpsc::UnboundedReceiver},
    time::timeout_at,
};
use uuid::Uuid;

use super::locked::pids;
use crate::{
    error::{complain, is_locked},
    live::{Link, bounded, jittered},
};

/// Between two statements, unless somebody waits.
const WINDOW: Duration = Duration::from_millis(250);

/// The most jobs of one statement, and the most bytes of checkpoints, unless one alone has more.
const MOST: usize = 500;
const LARGEST: usize = 8 * 1024 * 1024;

/// How often a statement is sent while the database does not answer, and the pause between. Whoever wrote a checkpoint is told then; other
/// reports are said again when something changes.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// What a job said is kept for so long after its end, for those who watch it, unless there are very many.
const KEPT: Duration = Duration::from_mins(1);
const MOST_KEPT: usize = 20_000;

/// Writes what comes in, until nobody sends any more.
pub(crate) async fn write_reports(incoming: Arc<Mutex<UnboundedReceiver<Arc<Report>>>>, mut link: Link, store: Store) {
    let mut incoming = incoming.lock().await;
    let mut last: Option<Instant> = None;
    let mut over = Over::default();
    let mut changed = Vec::new();
    loop {
        let received = match over.due() {
            Some(due) => timeout_at(due.into(), incoming.recv()).await.ok(),
            None => Some(incoming.recv().await),
        };
        let Some(received) = received else {
            over.clear(&mut link, store).await;
            continue;
        };
        let Some(first) = received else { break };
        let until = last.map_or_else(Instant::now, |last| last + WINDOW);
        changed.push(first);
        collect(&mut incoming, &mut changed, until).await;
        over.note(&changed);
        if write(&mut link, store, std::mem::take(&mut changed)).await {
            last = Some(Instant::now());
        }
        over.clear(&mut link, store).await;
    }
    link.close().await;
}

/// What comes in until then, or until somebody waits.
async fn collect(incoming: &mut UnboundedReceiver<Arc<Report>>, changed: &mut Vec<Arc<Report>>, until: Instant) {
    let mut seen = 0;
    loop {
        while let Ok(one) = incoming.try_recv() {
            changed.push(one);
        }
        if changed[seen..].iter().any(|report| report.is_urgent()) {
            return;
        }
        seen = changed.len();
        match timeout_at(until.into(), incoming.recv()).await {
            Ok(Some(one)) => changed.push(one),
            _ => return,
        }
    }
}

/// Writes what these have to say; returns whether there was anything.
async fn write(link: &mut Link, store: Store, reports: Vec<Arc<Report>>) -> bool {
    let mut entries: Vec<(Arc<Report>, ReportEntry)> =
        reports.into_iter().filter_map(|report| report.take().map(|entry| (report, entry))).collect();
    let any = !entries.is_empty();
    while !entries.is_empty() {
        let mut bytes = 0;
        let fitting = entries.iter().take(MOST).take_while(|(_, entry)| {
            bytes += entry.checkpoint.as_ref().map_or(0, String::len);
            bytes <= LARGEST
        });
        let most = fitting.count().max(1);
        let rest = entries.split_off(most.min(entries.len()));
        write_some(link, store, std::mem::replace(&mut entries, rest)).await;
    }
    any
}

/// One statement, however often it must be sent: said twice it is the same.
async fn write_some(link: &mut Link, store: Store, mut entries: Vec<(Arc<Report>, ReportEntry)>) {
    let mut tries = 1;
    let accepted = loop {
        match send(link, store, &entries).await {
            Err(error) if is_locked(&error) && refuse_locked(link, store, &mut entries).await => {
                if entries.is_empty() {
                    return;
                }
            }
            Err(error) if tries < TRIES && error.as_database_error().is_none() => {
                tries += 1;
                tokio::time::sleep(jittered(PAUSE)).await;
            }
            Err(error) => {
                complain(&error, "cannot write what jobs report");
                break Err(queue_core::message(&error));
            }
            Ok(accepted) => break Ok(accepted),
        }
    };
    for (report, entry) in entries {
        let written = match &accepted {
            Ok(accepted) if accepted.contains(&(entry.fence.token, entry.fence.id)) => Written::Yes,
            Ok(_) => Written::Refused,
            Err(why) => Written::Failed(why.clone()),
        };
        report.answer(entry, &written);
    }
}

/// Answers those on leases that somebody's open transaction has locked, and takes them out of the others; returns whether there were any.
async fn refuse_locked(link: &mut Link, store: Store, entries: &mut Vec<(Arc<Report>, ReportEntry)>) -> bool {
    let Ok(locked) = pids(link, store, entries.iter().map(|(_, entry)| entry.fence.token).collect()).await else { return false };
    for (report, entry) in entries.extract_if(.., |(_, entry)| locked.contains_key(&entry.fence.token)) {
        let pid = &locked[&entry.fence.token];
        report.answer(entry, &Written::Failed(format!("the open transaction of the session {pid} has locked the job's lease")));
    }
    !locked.is_empty()
}

/// Returns which were accepted.
async fn send(link: &mut Link, store: Store, entries: &[(Arc<Report>, ReportEntry)]) -> sqlx::Result<HashSet<(Uuid, JobId)>> {
    let said = || entries.iter().map(|(_, entry)| entry);
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/note.sql")))
        .bind(said().map(|entry| entry.fence.token).collect::<Vec<_>>())
        .bind(said().map(|entry| entry.fence.id).collect::<Vec<_>>())
        .bind(said().map(|entry| entry.fence.attempt).collect::<Vec<_>>())
        .bind(said().map(|entry| entry.fraction).collect::<Vec<_>>())
        .bind(said().map(|entry| entry.stage.as_deref()).collect::<Vec<_>>())
        .bind(said().map(|entry| entry.counts.as_str()).collect::<Vec<_>>())
        .bind(said().map(|entry| entry.checkpoint.as_deref()).collect::<Vec<_>>());
    let accepted = bounded(statement.fetch_all(link.get().await?)).await;
    Ok(link.note(accepted)?.into_iter().collect())
}

/// Jobs that said something and whose attempt is over, with when that was.
#[derive(Default)]
struct Over(VecDeque<(Instant, JobId)>);

impl Over {
    /// Keeps in mind which of these are over.
    fn note(&mut self, reports: &[Arc<Report>]) {
        let now = Instant::now();
        self.0.extend(reports.iter().filter_map(|report| report.is_left_behind()).map(|id| (now, id)));
    }

    /// When the oldest is to be cleared.
    fn due(&self) -> Option<Instant> {
        self.0.front().map(|(since, _)| *since + KEPT)
    }

    /// Deletes the rows whose time has come, those of jobs that are over; of the others later attempts will. What fails is left to pruning.
    async fn clear(&mut self, link: &mut Link, store: Store) {
        while self.0.len() > MOST_KEPT || self.due().is_some_and(|due| due <= Instant::now()) {
            let count = self.0.len().min(MOST);
            let ids: Vec<JobId> = self.0.drain(..count).map(|(_, id)| id).collect();
            if let Err(error) = clear(link, store, &ids).await {
                complain(&error, "cannot clear what jobs reported; pruning will");
            }
        }
    }
}

async fn clear(link: &mut Link, store: Store, ids: &[JobId]) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/clear_progress.sql"))).bind(ids);
    let cleared = bounded(statement.execute(link.get().await?)).await;
    link.note(cleared).map(drop)
}
