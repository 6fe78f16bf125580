//! Settle loop, which writes the verdicts on jobs to the store. Verdicts that arrive while a batch is in flight form the next batch.
//!
//! A settle is retried until the database responds. A verdict whose lease is lost is refused, which does not count as a failure of the job.
//! A verdict that the server rejects is moved to `RejectedVerdicts`, so that other verdicts are written. A verdict that waits for a lock is
//! moved to `LockedVerdicts`.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use queue_core::Store;
use tokio::{
    sync::{Mutex, mpsc::Receiver},
    time::sleep_until,
};
use tokio_util::sync::CancellationToken;

use super::{
    locked::LockedVerdicts,
    pending::{PendingVerdicts, SettleBatch},
    rejected::RejectedVerdicts,
    send::{SettleNotifications, SettleStatement, WholeLease, has_map_parts, is_data_error, is_rejection, send_leases, send_verdicts},
    settlement::Settlement,
};
use crate::{
    error::{is_locked, warn_throttled},
    live::{Config, LoopHealth, Notifier, StoreConnection, has_moved, jittered},
    tally::MetricsBuffer,
};

/// Maximum number of verdicts per statement.
const MAX_VERDICTS: usize = 1000;

/// Maximum total size in bytes of the outputs and errors in a statement. A single larger verdict is sent alone. Without this limit, a
/// message could exceed the server's maximum of one gigabyte, and the settle would be retried forever.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Minimum delays before the first retry and before each further retry while the database is unavailable. Jitter at most doubles the
/// delay, so that workers do not retry simultaneously. The first delay is short because most failures are a single closed connection.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// Returns a function that starts the settle loop. The loop settles incoming verdicts until `closing` is cancelled, and then settles the
/// remaining verdicts in the channel. After a panic, verdicts in memory are lost, and their jobs are recovered.
pub(crate) fn settle_all(
    (incoming, closing): (Arc<Mutex<Receiver<Settlement>>>, CancellationToken),
    connection: StoreConnection,
    config: &Config,
    (notifier, metrics): (&Arc<Notifier>, &MetricsBuffer),
) -> impl FnMut() -> BoxFuture<'static, ()> + Send + use<> {
    let (store, lease_ttl, notifier, metrics) = (config.store, config.lease_ttl, Arc::clone(notifier), metrics.clone());
    move || {
        let rejected = RejectedVerdicts::new(metrics.clone(), notifier.loop_health().clone(), lease_ttl);
        let incoming = (Arc::clone(&incoming), closing.clone());
        settle_until_closed(incoming, connection.another(), store, Arc::clone(&notifier), (metrics.clone(), rejected)).boxed()
    }
}

async fn settle_until_closed(
    (incoming, closing): (Arc<Mutex<Receiver<Settlement>>>, CancellationToken),
    mut connection: StoreConnection,
    store: Store,
    notifier: Arc<Notifier>,
    (metrics, mut rejected): (MetricsBuffer, RejectedVerdicts),
) {
    let mut incoming = incoming.lock().await;
    notifier.loop_health().settling.clear();
    let mut received = Vec::new();
    let mut pending = PendingVerdicts::default();
    let mut locked = LockedVerdicts::default();
    loop {
        // While too many verdicts are rejected or locked, the loop accepts no further verdicts, and slots must wait.
        if rejected.is_full() {
            rejected.wait_for_retry().await;
        } else if locked.is_full() {
            locked.wait_for_check().await;
        } else if !pending.is_empty() {
            // Takes the verdicts that arrived during the last batch, without waiting for further verdicts.
            while received.len() < MAX_VERDICTS && incoming.try_recv().map(|settlement| received.push(settlement)).is_ok() {}
        } else {
            let due = rejected.next_retry().into_iter().chain(locked.next_check()).min();
            if !receive(&mut incoming, &mut received, &closing, due).await {
                break;
            }
        }
        notifier.loop_health().settling.set_first();
        metrics.record(received.iter().filter(|settlement| settlement.is_settled).filter_map(|settlement| settlement.counted(false)));
        // The handlers' own transactions may have released ordering keys or finished child jobs.
        if received
            .iter()
            .any(|settlement| settlement.is_settled && (settlement.ending.key().is_some() || settlement.ending.has_dependents()))
        {
            notifier.notify_keys();
        }
        pending.extend(received.drain(..));
        let batch = pending.next_batch();
        settle_and_notify(&mut connection, store, batch, &mut rejected, &mut locked, &notifier).await;
        if locked.next_check().is_some_and(|due| due <= Instant::now()) {
            let unlocked = locked.take_unlocked(&mut connection, store).await;
            settle_and_notify(&mut connection, store, unlocked, &mut rejected, &mut locked, &notifier).await;
        }
        if rejected.next_retry().is_some_and(|due| due <= Instant::now()) {
            rejected.retry_due(&mut connection, store, &notifier).await;
        }
        // The loop is unhealthy while it accepts no verdicts, or while the statement `Settle` waits for a locked table.
        if !rejected.is_full() && !locked.is_full() && !locked.is_blocked(SettleStatement::Settle) {
            notifier.loop_health().settling.clear();
        }
    }
    // This wait needs no timeout, because the worker waits only for a limited time for the settle loop to end.
    while locked.next_check().is_some() {
        locked.wait_for_check().await;
        let unlocked = locked.take_unlocked(&mut connection, store).await;
        settle_and_notify(&mut connection, store, unlocked, &mut rejected, &mut locked, &notifier).await;
    }
    rejected.retry_finally(&mut connection, store, &notifier).await;
    connection.close().await;
}

async fn settle_and_notify(
    connection: &mut StoreConnection,
    store: Store,
    batch: SettleBatch,
    rejected: &mut RejectedVerdicts,
    locked: &mut LockedVerdicts,
    notifier: &Notifier,
) {
    if batch.verdicts.is_empty() && batch.leases.is_empty() {
        return;
    }
    let (notifications, start) = (SettleNotifications::of(&batch.verdicts, &batch.leases), Instant::now());
    settle(connection, store, batch, rejected, locked).await;
    rejected.health().note_settle(start.elapsed());
    notifications.send(connection, store, notifier).await;
}

/// Waits for verdicts until `due`. Returns `false` once the channel is closed and empty.
async fn receive(
    incoming: &mut Receiver<Settlement>,
    received: &mut Vec<Settlement>,
    closing: &CancellationToken,
    due: Option<Instant>,
) -> bool {
    loop {
        tokio::select! {
            biased;
            count = incoming.recv_many(received, MAX_VERDICTS) => return count > 0,
            () = closing.cancelled(), if !incoming.is_closed() => incoming.close(),
            () = sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => return true,
        }
    }
}

/// Settles the whole leases of a batch, and then the remaining verdicts, grouped by [`SettleStatement`].
async fn settle(
    connection: &mut StoreConnection,
    store: Store,
    batch: SettleBatch,
    rejected: &mut RejectedVerdicts,
    locked: &mut LockedVerdicts,
) {
    let SettleBatch { mut verdicts, leases } = batch;
    let (with_parts, plain): (Vec<_>, Vec<_>) = leases.into_iter().partition(|(_, jobs)| has_map_parts(jobs));
    for leases in [plain, with_parts] {
        verdicts.extend(settle_leases(connection, store, leases, rejected, locked).await);
    }
    // Each statement is retried separately. Otherwise, after an error in one statement, verdicts that another statement has written would
    // be sent again. The server would refuse these verdicts, which would look like a lost lease.
    for statement in SettleStatement::ALL {
        let of_statement: Vec<_> = verdicts.extract_if(.., |settlement| SettleStatement::of(settlement) == statement).collect();
        if locked.is_blocked(statement) {
            locked.defer(of_statement);
        } else if !of_statement.is_empty() {
            settle_verdicts(connection, store, of_statement, rejected, locked).await;
        }
    }
}

/// Settles leases as a whole. Returns the verdicts that must be settled job by job. This is necessary if the statement is rejected, or if
/// it waits for a lock other than a lock on a lease. It is also necessary if a lease is refused, for example because it lists a job
/// without a verdict.
async fn settle_leases(
    connection: &mut StoreConnection,
    store: Store,
    mut leases: Vec<WholeLease>,
    rejected: &mut RejectedVerdicts,
    locked: &mut LockedVerdicts,
) -> Vec<Settlement> {
    let mut retries = SettleRetries::default();
    while !leases.is_empty() {
        match send_leases(connection, store, &leases).await {
            Ok(lost) => {
                // After a retry, a lease may be refused because an earlier execution of the statement has already settled it. The
                // jobs of refused leases are then not settled one by one.
                let refused: Vec<WholeLease> =
                    if retries.count == 0 { leases.extract_if(.., |(token, _)| lost.contains(token)).collect() } else { Vec::new() };
                let is_lost = retries.report_lost(lost.len() - refused.len(), rejected.lease_ttl());
                rejected
                    .record_accepted(leases.iter().flat_map(|(_, jobs)| jobs), |settlement| is_lost && lost.contains(&settlement.token));
                return refused.into_iter().flat_map(|(_, jobs)| jobs).collect();
            }
            Err(error) if is_rejection(&error) => {
                let (count, error) = (leases.len(), queue_core::message(&error));
                tracing::warn!(leases = count, error, "settling whole leases failed; settling their jobs one by one");
                return leases.into_iter().flat_map(|(_, jobs)| jobs).collect();
            }
            Err(error) if is_locked(&error) => {
                if !locked.defer_locked_leases(connection, store, &mut leases).await {
                    // The jobs are settled one by one, because the statement for single verdicts does not necessarily write to the locked
                    // table.
                    return leases.into_iter().flat_map(|(_, jobs)| jobs).collect();
                }
            }
            Err(error) => retries.pause(&error, rejected.health()).await,
        }
    }
    Vec::new()
}

/// Settles verdicts that share one statement. If the statement is rejected, the two halves of the verdicts are settled separately, so that
/// a rejected verdict does not affect other verdicts.
async fn settle_verdicts(
    connection: &mut StoreConnection,
    store: Store,
    mut verdicts: Vec<Settlement>,
    rejected: &mut RejectedVerdicts,
    locked: &mut LockedVerdicts,
) {
    let texts = verdicts.iter().flat_map(|settlement| [settlement.ending.output(), settlement.ending.error()]).flatten();
    let bytes: usize = texts.map(str::len).sum();
    let mut retries = SettleRetries::default();
    let rejection = loop {
        if bytes > MAX_BYTES && verdicts.len() > 1 {
            break None;
        }
        match send_verdicts(connection, store, rejected.metrics(), &verdicts).await {
            Ok(lost) => {
                let is_lost = retries.report_lost(lost.len(), rejected.lease_ttl());
                return rejected
                    .record_accepted(verdicts.iter(), |settlement| is_lost && lost.contains(&(settlement.token, settlement.id)));
            }
            Err(error) if is_rejection(&error) => break Some(error),
            Err(error) if is_locked(&error) && locked.defer_locked(connection, store, &mut verdicts).await => {
                if verdicts.is_empty() {
                    return;
                }
            }
            // The lock could not be identified. Halving finds the verdict that waits for the lock.
            Err(error) if is_locked(&error) && retries.count > 0 => break Some(error),
            Err(error) => retries.pause(&error, rejected.health()).await,
        }
    };
    if verdicts.len() > 1 {
        if let Some(error) = rejection {
            let error = queue_core::message(&error);
            tracing::debug!(jobs = verdicts.len(), error, "settling verdicts together failed; settling each half");
        }
        let rest = verdicts.split_off(verdicts.len() / 2);
        Box::pin(settle_verdicts(connection, store, verdicts, rejected, locked)).await;
        return Box::pin(settle_verdicts(connection, store, rest, rejected, locked)).await;
    }
    let (Some(mut settlement), Some(error)) = (verdicts.pop(), rejection) else { return };
    if is_locked(&error) {
        return locked.defer_unidentified(settlement);
    }
    if is_data_error(&error) && settlement.ending.redact() {
        let (job, error) = (settlement.id, queue_core::message(&error));
        tracing::warn!(%job, error, "text of the verdict rejected by the server; settling without it");
        return Box::pin(settle_verdicts(connection, store, vec![settlement], rejected, locked)).await;
    }
    rejected.push(settlement, &error);
}

/// Number of retries of one statement, and time of the first failure.
#[derive(Default)]
struct SettleRetries {
    count: u32,
    first_failure: Option<Instant>,
}

impl SettleRetries {
    /// Counts a retry and waits for the retry delay.
    async fn pause(&mut self, error: &sqlx::Error, health: &LoopHealth) {
        health.settle_retries.fetch_add(1, Relaxed);
        let delay = RETRY_DELAYS[usize::from(self.count > 0 && !has_moved(error))];
        if self.count > 0 {
            warn_throttled(error, "settle failed; retrying");
        }
        self.count += 1;
        self.first_failure.get_or_insert_with(Instant::now);
        tokio::time::sleep(jittered(delay)).await;
    }

    /// Returns whether the leases of the refused verdicts are lost, and logs lost leases.
    ///
    /// A commit may have succeeded although its response was an error. The database then refuses the retried verdicts. After retries,
    /// refused verdicts count as lost only if the retries outlast the lease TTL. By then, other workers may have recovered the jobs.
    fn report_lost(&self, refused: usize, lease_ttl: Duration) -> bool {
        let has_outlived_lease = self.first_failure.is_some_and(|failure| failure.elapsed() >= lease_ttl);
        let is_lost = refused > 0 && (self.count == 0 || has_outlived_lease);
        if is_lost {
            tracing::warn!(refused, "lease lost: verdicts refused; the jobs were recovered by another worker");
        }
        is_lost
    }
}
