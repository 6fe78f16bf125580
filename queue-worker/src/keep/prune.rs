//! Maintains the store's partitions and history: creates partitions in advance, drops old partitions, and deletes history whose retention
//! has ended.
//!
//! Any worker can prune at any time. If several workers run the same statement at the same time, each skips the rows that another worker
//! has locked, or skips the whole task.

use std::time::Duration;

use queue_core::{JobId, Store, migrate::DAYS_AHEAD};
use sqlx::PgConnection;

use super::{lanes::delete_lanes, recover::delete_workers};
use crate::{
    live::{Config, bounded},
    tally::{prune_totals, roll_up},
};

/// Maximum number of rows per statement.
const MAX_ROWS: i64 = 5000;

/// Maximum number of keys or rows that a statement checks. Producers that use one of the checked uniqueness keys wait for the statement.
const PAGE_SIZE: i32 = 1000;

/// Maximum number of pages of uniqueness keys that a round checks. These pages contain two million keys, more than three times as many as
/// are created in a minute at 10,000 enqueues per second.
const MAX_KEY_PAGES: usize = 2000;

/// Maximum number of pages of ordering keys that a round checks for a missing first job. Checking a page takes about 14 ms.
const ORDERING_KEY_PAGES: usize = 20;

/// Number of pages that [`delete_orphans`] scans from the oldest rows before it jumps ahead. After the jump, it scans at most the same
/// number of pages again.
const LOG_PAGES: usize = 100;

/// Maintenance tasks, in the order in which they run each minute. A failed task is logged and retried a minute later. Other tasks are not
/// affected.
#[derive(Clone, Copy, Debug)]
pub(super) enum PruneTask {
    CreatePartitions,
    DeleteHistory,
    DeleteShortHistory,
    DeleteDead,
    DeleteUniqueKeys,
    FreeOrderingKeys,
    DeleteWorkers,
    DeleteWaiters,
    DeleteProgress,
    DeleteTicks,
    DeleteStarts,
    DropPartitions,
    /// Deletes expired history in partitions that are kept for unexpired jobs. Runs after `DropPartitions`.
    ThinPartitions,
    /// Deletes unused lanes. Runs after the tasks that delete the lanes' jobs.
    DeleteLanes,
    /// Adds recorded attempt counts to the totals, including counts recorded by processes that have since ended.
    RollUp,
    DeleteTotals,
    DeleteLogs,
    DeleteSteps,
    DeleteSignals,
    DeleteChildren,
    DeleteGathers,
    DeleteNodes,
}

impl PruneTask {
    pub(super) const ALL: [Self; 22] = [
        Self::CreatePartitions,
        Self::DeleteHistory,
        Self::DeleteShortHistory,
        Self::DeleteDead,
        Self::DeleteUniqueKeys,
        Self::FreeOrderingKeys,
        Self::DeleteWorkers,
        Self::DeleteWaiters,
        Self::DeleteProgress,
        Self::DeleteTicks,
        Self::DeleteStarts,
        Self::DropPartitions,
        Self::ThinPartitions,
        Self::DeleteLanes,
        Self::RollUp,
        Self::DeleteTotals,
        Self::DeleteLogs,
        Self::DeleteSteps,
        Self::DeleteSignals,
        Self::DeleteChildren,
        Self::DeleteGathers,
        Self::DeleteNodes,
    ];

    /// Returns whether the task creates or drops partitions.
    pub(super) fn is_partition_task(self) -> bool {
        matches!(self, Self::CreatePartitions | Self::DropPartitions)
    }

    /// Returns the log message for a failure of the task.
    pub(super) fn failure_message(self) -> &'static str {
        match self {
            Self::CreatePartitions => "cannot create partitions in advance; retrying in a minute",
            Self::DeleteHistory => "cannot delete expired history; retrying in a minute",
            Self::DeleteShortHistory => "cannot delete the history of job types with a shorter retention; retrying in a minute",
            Self::DeleteDead => "cannot delete expired dead letters; retrying in a minute",
            Self::DeleteUniqueKeys => "cannot delete unused uniqueness keys; retrying in a minute",
            Self::FreeOrderingKeys => "cannot free ordering keys whose first job is gone; retrying in a minute",
            Self::DeleteWorkers => "cannot delete the rows of silent workers; retrying in a minute",
            Self::DeleteWaiters => "cannot delete the rows of processes that no longer wait; retrying in a minute",
            Self::DeleteProgress => "cannot delete the progress of finished jobs; retrying in a minute",
            Self::DeleteTicks => "cannot delete old ticks of schedules; retrying in a minute",
            Self::DeleteStarts => "cannot delete old start times of rate limits; retrying in a minute",
            Self::DropPartitions => "cannot drop expired partitions; retrying in a minute",
            Self::ThinPartitions => "cannot delete expired history in partitions that are kept; retrying in a minute",
            Self::DeleteLanes => "cannot delete unused lanes; retrying in a minute",
            Self::RollUp => "cannot add up the counts of attempts; retrying in a minute",
            Self::DeleteTotals => "cannot delete old counts of attempts; retrying in a minute",
            Self::DeleteLogs => "cannot delete the logs of deleted jobs; retrying in a minute",
            Self::DeleteSteps => "cannot delete the steps of deleted jobs; retrying in a minute",
            Self::DeleteSignals => "cannot delete the signals to deleted jobs; retrying in a minute",
            Self::DeleteChildren => "cannot report finished children or delete children of deleted jobs; retrying in a minute",
            Self::DeleteGathers => "cannot count the jobs of maps or delete maps of deleted jobs; retrying in a minute",
            Self::DeleteNodes => "cannot report finished nodes of flows or delete nodes of deleted jobs; retrying in a minute",
        }
    }

    pub(super) async fn run(self, connection: &mut PgConnection, config: &Config) -> sqlx::Result<()> {
        let (store, seconds) = (config.store, config.retention.as_secs_f64());
        match self {
            Self::CreatePartitions => {
                let made = sqlx::query_scalar::<_, i32>(store.sql(include_str!("../../sql/add_days.sql"))).bind(DAYS_AHEAD);
                bounded(made.fetch_one(connection)).await.map(drop)
            }
            Self::DeleteHistory => delete_history(connection, store, seconds).await,
            Self::DeleteShortHistory => delete_short_history(connection, store, seconds).await,
            Self::DeleteDead => match config.dead_retention {
                Some(retention) => delete_dead(connection, store, retention).await,
                None => Ok(()),
            },
            Self::DeleteUniqueKeys => delete_unique_keys(connection, store).await,
            Self::FreeOrderingKeys => free_ordering_keys(connection, store).await,
            Self::DeleteWorkers => delete_workers(connection, store, &[]).await,
            Self::DeleteWaiters => {
                bounded(sqlx::query(store.sql(include_str!("../../sql/prune_waiters.sql"))).execute(connection)).await.map(drop)
            }
            Self::DeleteProgress => delete_progress(connection, store).await,
            Self::DeleteTicks => delete_ticks(connection, store, seconds).await,
            Self::DeleteStarts => {
                bounded(sqlx::query(store.sql(include_str!("../../sql/prune_rates.sql"))).execute(connection)).await.map(drop)
            }
            Self::DropPartitions => drop_partitions(connection, store, seconds).await,
            Self::ThinPartitions => thin_partitions(connection, store, seconds).await,
            Self::DeleteLanes => delete_lanes(connection, store, config.retention).await,
            Self::RollUp => roll_up(connection, store).await,
            Self::DeleteTotals => prune_totals(connection, store).await,
            Self::DeleteLogs => delete_orphans(connection, store, include_str!("../../sql/prune_logs.sql"), config.retention).await,
            Self::DeleteSteps => delete_orphans(connection, store, include_str!("../../sql/prune_steps.sql"), config.retention).await,
            Self::DeleteSignals => delete_orphans(connection, store, include_str!("../../sql/prune_signals.sql"), config.retention).await,
            Self::DeleteChildren => delete_orphans(connection, store, include_str!("../../sql/prune_children.sql"), config.retention).await,
            Self::DeleteGathers => delete_orphans(connection, store, include_str!("../../sql/prune_gathers.sql"), config.retention).await,
            Self::DeleteNodes => delete_orphans(connection, store, include_str!("../../sql/prune_nodes.sql"), config.retention).await,
        }
    }
}

/// Loads the job types that have their own retention. The flag is `true` if a type's retention is shorter than the store's retention.
async fn load_type_retentions(connection: &mut PgConnection, store: Store, seconds: f64) -> sqlx::Result<Vec<(String, bool)>> {
    let kept = sqlx::query_as(store.sql(include_str!("../../sql/kept_types.sql"))).bind(seconds);
    bounded(kept.fetch_all(connection)).await
}

async fn delete_history(connection: &mut PgConnection, store: Store, seconds: f64) -> sqlx::Result<()> {
    let kept = load_type_retentions(connection, store, seconds).await?;
    // `prune_kept.sql` also checks job types, which is needed only if a type has its own retention.
    let statement = if kept.is_empty() { include_str!("../../sql/prune_done.sql") } else { include_str!("../../sql/prune_kept.sql") };
    while {
        let statement = sqlx::query_scalar::<_, i64>(store.sql(statement)).bind(seconds).bind(MAX_ROWS);
        bounded(statement.fetch_one(&mut *connection)).await? >= MAX_ROWS
    } {}
    Ok(())
}

async fn delete_short_history(connection: &mut PgConnection, store: Store, seconds: f64) -> sqlx::Result<()> {
    let kept = load_type_retentions(connection, store, seconds).await?;
    for (job_type, _) in kept.iter().filter(|(_, is_shorter)| *is_shorter) {
        while {
            let early = sqlx::query_scalar::<_, bool>(store.sql(include_str!("../../sql/prune_early.sql")))
                .bind(job_type)
                .bind(MAX_ROWS)
                .bind(seconds);
            bounded(early.fetch_optional(&mut *connection)).await? == Some(true)
        } {}
    }
    Ok(())
}

async fn delete_dead(connection: &mut PgConnection, store: Store, retention: Duration) -> sqlx::Result<()> {
    while {
        let dead = sqlx::query_scalar::<_, i64>(store.sql(include_str!("../../sql/prune_dead.sql")));
        bounded(dead.bind(retention.as_secs_f64()).bind(MAX_ROWS).fetch_one(&mut *connection)).await? >= MAX_ROWS
    } {}
    Ok(())
}

async fn delete_ticks(connection: &mut PgConnection, store: Store, seconds: f64) -> sqlx::Result<()> {
    while {
        let deleted = sqlx::query_scalar::<_, i64>(store.sql(include_str!("../../sql/prune_fires.sql"))).bind(seconds).bind(MAX_ROWS);
        bounded(deleted.fetch_one(&mut *connection)).await? >= MAX_ROWS
    } {}
    Ok(())
}

async fn drop_partitions(connection: &mut PgConnection, store: Store, seconds: f64) -> sqlx::Result<()> {
    while {
        let dropped = sqlx::query_scalar::<_, bool>(store.sql(include_str!("../../sql/drop_day.sql"))).bind(seconds);
        bounded(dropped.fetch_one(&mut *connection)).await?
    } {}
    Ok(())
}

/// Deletes expired history in partitions that are kept because they contain many unexpired jobs.
async fn thin_partitions(connection: &mut PgConnection, store: Store, seconds: f64) -> sqlx::Result<()> {
    let mut from = Some(JobId(i64::MIN));
    while let Some(begin) = from {
        let page = sqlx::query_scalar::<_, Option<JobId>>(store.sql(include_str!("../../sql/prune_days.sql")));
        from = bounded(page.bind(seconds).bind(begin).bind(MAX_ROWS).fetch_optional(&mut *connection)).await?.flatten();
    }
    Ok(())
}

/// Deletes the progress of finished jobs whose worker ended before deleting it.
async fn delete_progress(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    let mut after = JobId(0);
    loop {
        let page = sqlx::query_scalar(store.sql(include_str!("../../sql/progress_page.sql"))).bind(after).bind(MAX_ROWS);
        let ids: Vec<JobId> = bounded(page.fetch_all(&mut *connection)).await?;
        let Some(last) = ids.last() else { return Ok(()) };
        after = *last;
        let clear = sqlx::query(store.sql(include_str!("../../sql/clear_progress.sql"))).bind(&ids);
        bounded(clear.execute(&mut *connection)).await?;
    }
}

/// Deletes logs, steps, signals and other rows of deleted jobs. A small table is scanned completely. In a larger table, the scan starts
/// with the oldest rows, then jumps ahead by a random part of the retention time and continues there. The random jump ensures that
/// repeated rounds also reach newer rows.
async fn delete_orphans(connection: &mut PgConnection, store: Store, statement: &'static str, retention: Duration) -> sqlx::Result<()> {
    let mut after = JobId(0);
    for page in 1..=2 * LOG_PAGES {
        let prune = sqlx::query_scalar(store.sql(statement)).bind(after).bind(PAGE_SIZE);
        let Some(last): Option<JobId> = bounded(prune.fetch_one(&mut *connection)).await? else { return Ok(()) };
        let drawn = || (retention.mul_f64(fastrand::f64()).as_millis() as i64) << 20;
        after = if page == LOG_PAGES { JobId(last.0.saturating_add(drawn())) } else { last };
    }
    Ok(())
}

/// Deletes uniqueness keys that no job holds. Each statement checks a page of keys. Stops once a statement deletes less than a quarter of
/// its page, because the table then mostly contains keys in use.
async fn delete_unique_keys(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    for _ in 0..MAX_KEY_PAGES {
        let deleted = sqlx::query_scalar::<_, i32>(store.sql(include_str!("../../sql/forget_keys.sql"))).bind(PAGE_SIZE);
        if bounded(deleted.fetch_one(&mut *connection)).await? < PAGE_SIZE / 4 {
            break;
        }
    }
    Ok(())
}

/// Row returned by `free_keys.sql`: the last scanned key, or `None` at the end of the scan. If a key was freed, the row also contains the
/// id of its missing first job, the id of its first blocked job, and the blocked job's queue and type.
type FreedKey = (Option<i64>, Option<JobId>, Option<JobId>, Option<String>, Option<String>);

/// Frees ordering keys whose first job no longer exists. Checks up to [`ORDERING_KEY_PAGES`] pages of keys with blocked jobs. The scan
/// starts at a random key and wraps around after the last key.
async fn free_ordering_keys(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    let (mut after, mut has_wrapped) = (fastrand::i64(..), false);
    for _ in 0..ORDERING_KEY_PAGES {
        let freed = sqlx::query_as(store.sql(include_str!("../../sql/free_keys.sql"))).bind(after).bind(PAGE_SIZE);
        let freed: Vec<FreedKey> = bounded(freed.fetch_all(&mut *connection)).await?;
        for (_, head, job, queue, job_type) in &freed {
            if let Some((head, job)) = head.zip(*job) {
                tracing::warn!(%head, %job, queue, job_type, "freed an ordering key whose first job is gone: an operator deleted its rows");
            }
        }
        after = match freed.first().and_then(|row| row.0) {
            Some(last) => last,
            None if has_wrapped => break,
            None => i64::MIN,
        };
        has_wrapped |= after == i64::MIN;
    }
    Ok(())
}
