//! Settle statements, their error classes, and the notifications to send afterwards. This module does not retry statements.

use std::{collections::HashMap, time::Duration};

use queue_core::{JobId, Store, options::Verdict, runner::SettlePath};
use sqlx::{Connection as _, PgConnection};
use tracing::{Instrument as _, Span, field::Empty};
use uuid::Uuid;

use super::{children::add_end_hints, settlement::Settlement};
use crate::{
    error::is_transient,
    live::{Notifier, StoreConnection, bounded},
    tally::MetricsBuffer,
};

/// State passed to [`add_end_hints`] if all jobs completed.
const COMPLETED: Option<&str> = Some("completed");

/// Lease token, and the verdicts on all jobs of the lease.
pub(super) type WholeLease = (Uuid, Vec<Settlement>);

/// Notifications to send after verdicts have been written.
pub(super) struct SettleNotifications {
    next_due: Option<Duration>,
    released_lanes: Vec<i64>,
    has_hints: bool,
}

impl SettleNotifications {
    pub(super) fn of(verdicts: &[Settlement], leases: &[WholeLease]) -> Self {
        let writes_hint = |settlement: &Settlement| {
            settlement.ending.released_key().is_some() || settlement.ending.path() == SettlePath::Park || settlement.ending.has_dependents()
        };
        Self {
            next_due: verdicts.iter().filter_map(|settlement| settlement.ending.wait()).min(),
            released_lanes: verdicts
                .iter()
                .filter(|settlement| settlement.ending.verdict() == Verdict::Release)
                .map(|settlement| settlement.lane)
                .collect(),
            has_hints: verdicts.iter().any(writes_hint) || leases.iter().any(|(_, jobs)| has_map_parts(jobs)),
        }
    }

    pub(super) async fn send(self, connection: &mut StoreConnection, store: Store, notifier: &Notifier) {
        if !self.released_lanes.is_empty() {
            // If the wake-up fails, a poll finds the released jobs.
            let _ = wake_released(connection, store, &self.released_lanes).await;
        }
        if self.has_hints {
            notifier.notify_keys();
        }
        notifier.notify_finished();
        if let Some(wait) = self.next_due {
            notifier.notify_due(wait);
        }
    }
}

/// Returns whether the error means that the server cannot store a value, such as invalid JSON or an oversized text.
pub(super) fn is_data_error(error: &sqlx::Error) -> bool {
    has_error_class(error, &["22", "54"])
}

/// Returns whether the error means that the server is available and rejects the statement for a permanent reason.
pub(super) fn is_rejection(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some() && !is_transient(error)
}

/// Returns whether the error's SQLSTATE code is in one of `classes`.
pub(super) fn has_error_class(error: &sqlx::Error, classes: &[&str]) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| classes.iter().any(|class| code.starts_with(class)))
}

/// Writes one verdict in the caller's transaction. Returns `false` if the verdict was refused.
pub(super) async fn settle_within(pg: &mut PgConnection, store: Store, settlement: &Settlement) -> sqlx::Result<bool> {
    let refused = if settlement.ending.path() == SettlePath::Forget {
        forget(pg, store, &[settlement]).await?
    } else {
        write(pg, store, &[settlement]).await?
    };
    let is_written = refused.is_empty();
    if is_written && settlement.ending.has_dependents() {
        add_end_hints(pg, store, &[settlement.id], None).await?;
    }
    Ok(is_written)
}

/// Returns whether any verdict completes a map part.
pub(super) fn has_map_parts(jobs: &[Settlement]) -> bool {
    jobs.iter().any(|settlement| settlement.ending.completes_part())
}

/// Settles whole leases and returns the tokens of the refused leases. If the leases contain map parts, hints about the finished parts are
/// written in the same transaction.
pub(super) async fn send_leases(connection: &mut StoreConnection, store: Store, leases: &[WholeLease]) -> sqlx::Result<Vec<Uuid>> {
    let span = settle_span(leases.len());
    let sent = async {
        let pg = connection.get().await?;
        if leases.iter().any(|(_, jobs)| has_map_parts(jobs)) {
            let mut tx = bounded(pg.begin()).await?;
            let lost = write_leases(&mut tx, store, leases).await?;
            let written = leases.iter().filter(|(token, _)| !lost.contains(token)).flat_map(|(_, jobs)| jobs);
            let parts: Vec<JobId> =
                written.filter(|settlement| settlement.ending.completes_part()).map(|settlement| settlement.id).collect();
            add_end_hints(&mut tx, store, &parts, COMPLETED).await?;
            bounded(tx.commit()).await?;
            Ok(lost)
        } else {
            write_leases(pg, store, leases).await
        }
    };
    let lost = sent.instrument(span.clone()).await;
    record_error(&span, connection.note(lost))
}

async fn write_leases(pg: &mut PgConnection, store: Store, leases: &[WholeLease]) -> sqlx::Result<Vec<Uuid>> {
    let tokens: Vec<Uuid> = leases.iter().map(|(token, _)| *token).collect();
    // A lease row names a lane only if all jobs in the lease were in that lane when claimed. For other leases, the statement needs the
    // lane of each job.
    let may_have_many_lanes =
        |jobs: &[Settlement]| jobs.iter().any(|settlement| settlement.lane != jobs[0].lane || jobs.len() < settlement.batch);
    let of_many_lanes = leases.iter().filter(|(_, jobs)| may_have_many_lanes(jobs)).flat_map(|(_, jobs)| jobs);
    let (ids, lanes): (Vec<i64>, Vec<i64>) = of_many_lanes.map(|settlement| (settlement.id.0, settlement.lane)).unzip();
    let counts: Vec<i32> = leases.iter().map(|(_, jobs)| i32::try_from(jobs.len()).unwrap_or(i32::MAX)).collect();
    let statement =
        sqlx::query_scalar(store.sql(include_str!("../../sql/settle_leases.sql"))).bind(tokens).bind(ids).bind(lanes).bind(counts);
    bounded(statement.fetch_all(pg)).await
}

/// Creates the span of a statement that settles `count` jobs or leases.
fn settle_span(count: usize) -> Span {
    tracing::debug_span!(
        target: "queue_worker::settle",
        "settle",
        otel.kind = "client",
        otel.status_description = Empty,
        messaging.system = "postgresql",
        messaging.operation.name = "settle",
        messaging.operation.type = "settle",
        messaging.batch.message_count = count,
    )
}

fn record_error<T>(span: &Span, sent: sqlx::Result<T>) -> sqlx::Result<T> {
    if let Err(error) = &sent {
        span.record("otel.status_description", queue_core::message(error));
    }
    sent
}

/// Wakes the workers that serve the queues of `lanes`, which contain released jobs.
async fn wake_released(connection: &mut StoreConnection, store: Store, lanes: &[i64]) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/wake_released.sql"))).bind(lanes);
    let woken = bounded(statement.execute(connection.get().await?)).await;
    connection.note(woken).map(drop)
}

/// Lease token and job id of a refused verdict.
pub(super) type RefusedVerdictKey = (Uuid, JobId);

/// Writes verdicts and returns the refused verdicts. Most verdicts share one statement. Separate statements settle jobs that leave no
/// record, jobs that did not start in time, parked jobs and restarted jobs. A verdict that has already been written is refused.
pub(super) async fn send_verdicts(
    connection: &mut StoreConnection,
    store: Store,
    metrics: &MetricsBuffer,
    verdicts: &[Settlement],
) -> sqlx::Result<Vec<RefusedVerdictKey>> {
    let span = settle_span(verdicts.len());
    let sent = async {
        let pg = connection.get().await?;
        let (children, others): (Vec<&Settlement>, Vec<_>) = verdicts.iter().partition(|settlement| settlement.ending.has_dependents());
        let mut lost = send_each(pg, store, metrics, &others).await?;
        if !children.is_empty() {
            lost.extend(send_children(pg, store, metrics, &children).await?);
        }
        Ok(lost)
    };
    let sent = sent.instrument(span.clone()).await;
    record_error(&span, connection.note(sent))
}

/// Writes the verdicts on child jobs. Writes hints about these jobs in the same transaction, so that their parents continue.
async fn send_children(
    pg: &mut PgConnection,
    store: Store,
    metrics: &MetricsBuffer,
    children: &[&Settlement],
) -> sqlx::Result<Vec<RefusedVerdictKey>> {
    let mut tx = bounded(pg.begin()).await?;
    let lost = send_each(&mut tx, store, metrics, children).await?;
    // The final state of a job is unknown if its verdict was refused, or if there are two verdicts on the job.
    let mut verdicts_by_job: HashMap<JobId, usize> = HashMap::new();
    for settlement in children {
        *verdicts_by_job.entry(settlement.id).or_default() += 1;
    }
    let has_completed = |settlement: &&&Settlement| {
        let is_refused = lost.contains(&(settlement.token, settlement.id));
        settlement.ending.completes_part() && verdicts_by_job[&settlement.id] == 1 && !is_refused
    };
    let (parts, others): (Vec<&&Settlement>, Vec<_>) = children.iter().partition(has_completed);
    let ids = |jobs: Vec<&&Settlement>| jobs.iter().map(|settlement| settlement.id).collect::<Vec<_>>();
    add_end_hints(&mut tx, store, &ids(parts), COMPLETED).await?;
    add_end_hints(&mut tx, store, &ids(others), None).await?;
    bounded(tx.commit()).await?;
    Ok(lost)
}

async fn send_each(
    pg: &mut PgConnection,
    store: Store,
    metrics: &MetricsBuffer,
    verdicts: &[&Settlement],
) -> sqlx::Result<Vec<RefusedVerdictKey>> {
    let of = |statement: SettleStatement| -> Vec<&Settlement> {
        verdicts.iter().filter(|settlement| SettleStatement::of_ending(settlement) == statement).copied().collect()
    };
    let expired = of(SettleStatement::Expire);
    let mut lost = if expired.is_empty() { Vec::new() } else { expire(pg, store, metrics, &expired).await? };
    let parked = of(SettleStatement::Park);
    if !parked.is_empty() {
        lost.extend(park(pg, store, &parked).await?);
    }
    let restarted = of(SettleStatement::Restart);
    if !restarted.is_empty() {
        lost.extend(restart(pg, store, &restarted).await?);
    }
    let forgotten = of(SettleStatement::Forget);
    if !forgotten.is_empty() {
        lost.extend(forget(pg, store, &forgotten).await?);
    }
    let others = of(SettleStatement::Settle);
    if !others.is_empty() {
        lost.extend(write(pg, store, &others).await?);
    }
    Ok(lost)
}

/// Tables that every settle statement may write to.
const COMMON_TABLES: [&str; 9] = ["lease", "done", "done_many", "dead", "failure", "ready", "scheduled", "active_key", "key_hint"];

/// Tables that only statements other than `Settle` may write to.
const RARE_TABLES: [&str; 13] = [
    "job",
    "parked",
    "signal",
    "signal_hint",
    "end_hint",
    "step",
    "progress",
    "expiry",
    "child",
    "gather",
    "map_batch",
    "gather_part",
    "gather_hint",
];

/// Statement that writes a verdict.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SettleStatement {
    Expire,
    Park,
    Restart,
    Forget,
    Settle,
    /// Any of the other statements, in one transaction with the hint for the parent.
    Child,
}

impl SettleStatement {
    pub(super) const ALL: [Self; 6] = [Self::Expire, Self::Park, Self::Restart, Self::Forget, Self::Settle, Self::Child];

    /// Returns the statement that writes the verdict.
    pub(super) fn of(settlement: &Settlement) -> Self {
        if settlement.ending.has_dependents() { Self::Child } else { Self::of_ending(settlement) }
    }

    /// Returns whether the statement writes to `table`. If `table` is a partition, checks the partitioned table.
    pub(super) fn writes_to(self, table: &str) -> bool {
        let is_table = |name: &&str| table.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
        COMMON_TABLES.iter().any(is_table) || (self != Self::Settle && RARE_TABLES.iter().any(is_table))
    }

    /// Returns whether the verdict may wait for locks on the job's rows, in addition to the lease's lock.
    pub(super) fn locks_job(settlement: &Settlement) -> bool {
        settlement.ending.key().is_some() || settlement.ending.path() != SettlePath::Settle
    }

    fn of_ending(settlement: &Settlement) -> Self {
        match settlement.ending.path() {
            SettlePath::Settle => Self::Settle,
            SettlePath::Forget => Self::Forget,
            SettlePath::Park => Self::Park,
            SettlePath::Restart => Self::Restart,
            SettlePath::Expire => Self::Expire,
        }
    }
}

/// Parks jobs that wait for signals. Returns the refused verdicts.
async fn park(pg: &mut PgConnection, store: Store, parked: &[&Settlement]) -> sqlx::Result<Vec<RefusedVerdictKey>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/park_held.sql")))
        .bind(parked.iter().map(|s| s.token).collect::<Vec<_>>())
        .bind(parked.iter().map(|s| s.id.0).collect::<Vec<_>>())
        .bind(parked.iter().map(|s| s.lane).collect::<Vec<_>>())
        .bind(parked.iter().map(|s| s.ending.attempt()).collect::<Vec<_>>())
        .bind(parked.iter().map(|s| s.ending.wait().map(|wait| wait.as_secs_f64() * 1000.0)).collect::<Vec<_>>())
        .bind(parked.iter().map(|s| serde_json::json!(s.ending.signals()).to_string()).collect::<Vec<_>>());
    bounded(statement.fetch_all(pg)).await
}

/// Restarts durable jobs. Returns the refused verdicts.
async fn restart(pg: &mut PgConnection, store: Store, restarted: &[&Settlement]) -> sqlx::Result<Vec<RefusedVerdictKey>> {
    let restarts = || restarted.iter().map(|s| s.ending.restart());
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/restart.sql")))
        .bind(restarted.iter().map(|s| s.token).collect::<Vec<_>>())
        .bind(restarted.iter().map(|s| s.id.0).collect::<Vec<_>>())
        .bind(restarted.iter().map(|s| s.ending.attempt()).collect::<Vec<_>>())
        .bind(restarts().map(|restart| restart.map(|restart| restart.stored.as_str())).collect::<Vec<_>>())
        .bind(restarts().map(|restart| restart.map(|restart| restart.payload.as_str())).collect::<Vec<_>>());
    bounded(statement.fetch_all(pg)).await
}

/// Cancels the jobs in `suspected` whose cancellation was requested. Expires the other jobs whose start deadline has passed according to
/// the database clock, and releases the remaining jobs. Returns the refused verdicts.
async fn expire(
    pg: &mut PgConnection,
    store: Store,
    metrics: &MetricsBuffer,
    suspected: &[&Settlement],
) -> sqlx::Result<Vec<RefusedVerdictKey>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/expire_held.sql")))
        .bind(suspected.iter().map(|s| s.token).collect::<Vec<_>>())
        .bind(suspected.iter().map(|s| s.id.0).collect::<Vec<_>>());
    // The flag is true for an expired job, and null for a refused verdict.
    let outcomes: Vec<(Uuid, JobId, Option<bool>)> = bounded(statement.fetch_all(pg)).await?;
    metrics.report_expired(&outcomes.iter().filter(|(.., expired)| *expired == Some(true)).map(|(_, id, _)| *id).collect::<Vec<_>>());
    Ok(outcomes.into_iter().filter(|(.., expired)| expired.is_none()).map(|(token, id, _)| (token, id)).collect())
}

/// Settles completed jobs that leave no record. Returns the refused verdicts.
async fn forget(pg: &mut PgConnection, store: Store, forgotten: &[&Settlement]) -> sqlx::Result<Vec<RefusedVerdictKey>> {
    let ids = || forgotten.iter().map(|s| s.id.0);
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/settle_forgotten.sql")))
        .bind(forgotten.iter().map(|s| s.token).collect::<Vec<_>>())
        .bind(ids().collect::<Vec<_>>())
        .bind(forgotten.iter().map(|s| s.ending.released_key()).collect::<Vec<_>>())
        .bind(ids().min())
        .bind(ids().max());
    bounded(statement.fetch_all(pg)).await
}

/// Writes all verdicts that have no separate statement. Returns the refused verdicts.
async fn write(pg: &mut PgConnection, store: Store, batch: &[&Settlement]) -> sqlx::Result<Vec<RefusedVerdictKey>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/settle.sql")))
        .bind(batch.iter().map(|s| s.token).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.id.0).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.verdict_name()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.lane).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.attempt()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.crashes).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.wait_ms()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.ran_ms()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.output()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.error()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.key()).collect::<Vec<_>>())
        .bind(batch.iter().map(|s| s.ending.released_key().is_some()).collect::<Vec<_>>());
    bounded(statement.fetch_all(pg)).await
}
