//! Journals steps of durable jobs: those that come in together in one statement, a lone one at once; and those that are committed with what they wrote.
//!
//! While one statement is in the air others collect. What the database refuses is a lost lease; while the database is away, steps wait, also
//! those whose attempts have ended: their work is done. One that is refused by itself harms no other, nor does one whose lease is locked.

use std::{
    collections::HashSet,
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{
    Error, JobId, Store,
    runner::{CommitResult, JournaledStep, OwnTransaction, StepEntry, Written},
};
use sqlx::{
    PgConnection, PgPool, Postgres, Transaction,
    postgres::PgArguments,
    query::{QueryAs, QueryScalar},
};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::sleep_until,
};
use uuid::Uuid;

use super::{
    locked::pids,
    own::{ASK_FOR, KEEP, PAUSE},
    send::is_refusal,
};
use crate::{
    error::{complain, is_locked},
    live::{Link, bounded, jittered},
};

/// The most steps of one statement, and the most bytes of outputs, unless one alone has more.
const MOST: usize = 500;
const LARGEST: usize = 8 * 1024 * 1024;

/// Between two looks whether locked leases are free.
const LOOK: Duration = Duration::from_millis(500);

const LOCKED: &str = "somebody's open transaction has locked leases of this worker: the steps of their jobs are journaled once it ends, others go on; \
    if it is stuck, end it with `select pg_terminate_backend(PID)`";

/// Where attempts send their steps.
#[derive(Clone, Debug)]
pub(crate) struct JournalSender(mpsc::UnboundedSender<Waiting>);

/// A step, and the attempt that waits until it is journaled.
#[derive(Debug)]
pub(crate) struct Waiting {
    entry: StepEntry,
    answer: oneshot::Sender<Written>,
}

impl JournalSender {
    /// A sender, and what it sends; the attempts that run bound how much that is.
    pub(crate) fn open() -> (Self, mpsc::UnboundedReceiver<Waiting>) {
        let (sender, incoming) = mpsc::unbounded_channel();
        (Self(sender), incoming)
    }

    pub(super) async fn write(&self, entry: StepEntry) -> Written {
        let (answer, written) = oneshot::channel();
        let ended = || Written::Failed("the worker has ended".to_owned());
        match self.0.send(Waiting { entry, answer }) {
            Ok(()) => written.await.unwrap_or_else(|_| ended()),
            Err(_) => ended(),
        }
    }
}

/// Writes what comes in, until nobody sends any more.
pub(crate) async fn write_journal(incoming: Arc<Mutex<mpsc::UnboundedReceiver<Waiting>>>, link: Link, store: Store) {
    let mut incoming = incoming.lock().await;
    let mut writer = Writer { link, store, locked: Vec::new(), next: Instant::now() };
    let mut received = Vec::new();
    loop {
        let look = async { if writer.locked.is_empty() { pending().await } else { sleep_until(writer.next.into()).await } };
        tokio::select! {
            count = incoming.recv_many(&mut received, MOST) => if count == 0 { break },
            () = look => received.extend(writer.free().await),
        }
        while !received.is_empty() {
            let mut bytes = 0;
            let fitting = received.iter().take_while(|one| {
                bytes += one.entry.output.as_ref().map_or(0, String::len);
                bytes <= LARGEST
            });
            let most = fitting.count().max(1);
            writer.write(received.drain(..most).collect()).await;
        }
    }
    writer.link.close().await;
}

/// What writes, and what waits for leases that somebody's open transaction has locked.
struct Writer {
    link: Link,
    store: Store,
    locked: Vec<Waiting>,
    /// When to look again whether they are free.
    next: Instant,
}

impl Writer {
    /// One statement, however often it must be sent: said twice it is the same. Of attempts that have ended too: what was done, was done. It is taken
    /// for new until the database knows better.
    async fn write(&mut self, mut steps: Vec<Waiting>) {
        let waits: HashSet<Uuid> = self.locked.iter().map(Waiting::token).collect();
        self.locked.extend(steps.extract_if(.., |one| waits.contains(&one.token())));
        let mut is_new = true;
        while !steps.is_empty() {
            match send(&mut self.link, self.store, &steps, is_new).await {
                Ok(accepted) => return steps.into_iter().for_each(|one| one.tell(&accepted)),
                Err(error) if is_new && is_journaled(&error) => is_new = false,
                Err(error) if is_locked(&error) && self.put_aside(&mut steps).await => {}
                Err(error) if is_refusal(&error) && !is_locked(&error) => return Box::pin(self.write_apart(steps, error)).await,
                Err(error) => {
                    complain(&error, "cannot journal steps; trying again");
                    tokio::time::sleep(jittered(PAUSE)).await;
                }
            }
        }
    }

    /// Each half by itself, until the one is found that is refused.
    async fn write_apart(&mut self, mut steps: Vec<Waiting>, error: sqlx::Error) {
        if steps.len() > 1 {
            let rest = steps.split_off(steps.len() / 2);
            self.write(steps).await;
            return self.write(rest).await;
        }
        for Waiting { entry, answer } in steps {
            tracing::warn!(job = %entry.fence.id, step = entry.name, error = queue_core::message(&error), "a step cannot be journaled");
            let _ = answer.send(Written::Failed(queue_core::message(&error)));
        }
    }

    /// Takes those on locked leases out of these; returns whether there were any.
    async fn put_aside(&mut self, steps: &mut Vec<Waiting>) -> bool {
        self.next = Instant::now() + LOOK;
        let Ok(locked) = pids(&mut self.link, self.store, steps.iter().map(Waiting::token).collect()).await else { return false };
        if let Some((lease, pid)) = locked.iter().next() {
            tracing::warn!(%lease, pid, leases = locked.len(), "{LOCKED}");
        }
        self.locked.extend(steps.extract_if(.., |one| locked.contains_key(&one.token())));
        !locked.is_empty()
    }

    /// Those whose leases are free again, or gone.
    async fn free(&mut self) -> Vec<Waiting> {
        self.next = Instant::now() + LOOK;
        let tokens = self.locked.iter().map(Waiting::token).collect();
        let Ok(locked) = pids(&mut self.link, self.store, tokens).await else { return Vec::new() };
        self.locked.extract_if(.., |one| !locked.contains_key(&one.token())).collect()
    }
}

impl Waiting {
    fn token(&self) -> Uuid {
        self.entry.fence.token
    }

    fn tell(self, accepted: &HashSet<(Uuid, JobId, String)>) {
        let Self { entry, answer } = self;
        let is_accepted = accepted.contains(&(entry.fence.token, entry.fence.id, entry.name));
        // Whoever does not wait any more need not know.
        let _ = answer.send(if is_accepted { Written::Yes } else { Written::Refused });
    }
}

/// Returns which were accepted. Those that are new have statements that cost less, and are an error if one is journaled already.
async fn send(link: &mut Link, store: Store, steps: &[Waiting], is_new: bool) -> sqlx::Result<HashSet<Accepted>> {
    let connection = link.get().await?;
    let accepted = if let ([one], true) = (steps, is_new) {
        let number = bounded(alone(store, &one.entry).fetch_optional(connection)).await;
        number.map(|number| number.into_iter().map(|_| (one.token(), one.entry.fence.id, one.entry.name.clone())).collect())
    } else {
        let entries: Vec<&StepEntry> = steps.iter().map(|one| &one.entry).collect();
        bounded(together(store, &entries, is_new).fetch_all(connection)).await.map(|rows| rows.into_iter().collect())
    };
    link.note(accepted)
}

/// Whether it was refused because its step is journaled: said again, after an answer that was lost.
fn is_journaled(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

/// A step that was accepted: its lease, its job, its name.
type Accepted = (Uuid, JobId, String);

/// The number of the transaction, or no row.
fn alone(store: Store, entry: &StepEntry) -> QueryScalar<'_, Postgres, String, PgArguments> {
    sqlx::query_scalar(store.sql(include_str!("../../sql/journal_one.sql")))
        .bind(entry.fence.token)
        .bind(entry.fence.id)
        .bind(&entry.name)
        .bind(entry.fence.attempt)
        .bind(ran_ms(entry))
        .bind(wait_ms(entry))
        .bind(entry.output.as_deref())
}

fn together<'q>(store: Store, entries: &[&'q StepEntry], is_new: bool) -> QueryAs<'q, Postgres, Accepted, PgArguments> {
    let said = || entries.iter();
    let statement = if is_new { include_str!("../../sql/journal_fresh.sql") } else { include_str!("../../sql/journal.sql") };
    sqlx::query_as(store.sql(statement))
        .bind(said().map(|entry| entry.fence.token).collect::<Vec<_>>())
        .bind(said().map(|entry| entry.fence.id).collect::<Vec<_>>())
        .bind(said().map(|entry| entry.name.as_str()).collect::<Vec<_>>())
        .bind(said().map(|entry| entry.fence.attempt).collect::<Vec<_>>())
        .bind(said().map(|entry| ran_ms(entry)).collect::<Vec<_>>())
        .bind(said().map(|entry| wait_ms(entry)).collect::<Vec<_>>())
        .bind(said().map(|entry| entry.output.as_deref()).collect::<Vec<_>>())
}

fn ran_ms(entry: &StepEntry) -> i32 {
    i32::try_from(entry.ran.as_millis()).unwrap_or(i32::MAX)
}

fn wait_ms(entry: &StepEntry) -> Option<f64> {
    entry.wait.map(|wait| wait.as_secs_f64() * 1000.0)
}

/// What earlier attempts of a job have journaled.
pub(crate) async fn steps_done(pool: &PgPool, store: Store, job: JobId) -> Result<Vec<JournaledStep>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/steps_done.sql"))).bind(job);
    let rows: Vec<(String, i16, Option<String>, Option<f64>)> = bounded(statement.fetch_all(pool)).await?;
    Ok(rows.into_iter().map(|(name, attempt, output, left_ms)| JournaledStep { name, attempt, output, left_ms }).collect())
}

/// Journals a step as the last statement of what wrote its effect, and commits.
pub(super) async fn end_step((pool, store): (&PgPool, Store), tx: OwnTransaction, entry: StepEntry) -> CommitResult {
    // Only tests lend transactions, and they have a backend of their own.
    let OwnTransaction::Pooled(mut tx) = tx else { return CommitResult::Lost };
    let written_by = match write_within(&mut tx, store, &entry).await {
        Ok(Some(number)) => number,
        Ok(None) => return roll_back(tx).await,
        // The commit was not sent, so it will not happen.
        Err(error) => return CommitResult::Undone(Error::Database(error).into()),
    };
    match bounded(tx.commit()).await {
        Ok(()) => CommitResult::Written,
        Err(error) => ask_after((pool, store), &entry, &written_by, error).await,
    }
}

/// Finds out whether a commit happened whose answer did not come.
async fn ask_after((pool, store): (&PgPool, Store), entry: &StepEntry, written_by: &str, error: sqlx::Error) -> CommitResult {
    let (job, step) = (entry.fence.id, entry.name.as_str());
    tracing::warn!(%job, step, error = queue_core::message(&error), "no answer to the commit of a step; asking what it came to");
    let (mut link, until) = (Link::new(pool, "reconcile"), Instant::now() + ASK_FOR);
    loop {
        let looked = happened(&mut link, store, entry, written_by).await;
        match link.note(looked) {
            Ok(Some(true)) => break CommitResult::Written,
            Ok(Some(false)) => break CommitResult::Undone(Error::Database(error).into()),
            Ok(None) | Err(_) if Instant::now() > until => break CommitResult::Unknown(Error::Database(error).into()),
            Ok(None) | Err(_) => tokio::time::sleep(jittered(PAUSE)).await,
        }
    }
}

async fn roll_back(tx: Transaction<'static, Postgres>) -> CommitResult {
    // Whether it succeeds or not, nothing of it stays.
    let _ = bounded(tx.rollback()).await;
    CommitResult::Lost
}

/// The last statement; returns the transaction's number, or none if the lease does not have the job any more.
async fn write_within(tx: &mut PgConnection, store: Store, entry: &StepEntry) -> sqlx::Result<Option<String>> {
    sqlx::raw_sql(KEEP).execute(&mut *tx).await?;
    bounded(alone(store, entry).fetch_optional(tx)).await
}

/// None while the transaction is under way.
async fn happened(link: &mut Link, store: Store, entry: &StepEntry, written_by: &str) -> sqlx::Result<Option<bool>> {
    let fence = entry.fence;
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/step_written.sql")));
    let statement = statement.bind(fence.id).bind(&entry.name).bind(fence.attempt).bind(written_by);
    bounded(statement.fetch_one(link.get().await?)).await
}
