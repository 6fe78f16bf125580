//! Keeping the store small: days made ahead, days dropped, history deleted once its retention is over.
//!
//! Any worker does it at any time; the statements see to it that one works and the others pass.

use std::time::Duration;

use queue_core::{JobId, Store, migrate::DAYS_AHEAD};
use sqlx::PgConnection;

use super::{lanes::forget_lanes, recover::forget_workers};
use crate::{
    live::{Config, bounded},
    tally::{prune_totals, roll_up},
};

/// The most jobs of one statement.
const MOST: i64 = 5000;

/// So many uniqueness keys are looked at by one statement: their producers wait for it.
const KEYS: i32 = 1000;

/// So many of those statements follow each other at most: three times as many keys as come in the minute until the next, at 10,000 a second.
const MOST_LOOKS: usize = 2000;

/// Pages of ordering keys that are checked for a missing first job each minute. A page takes about 14 ms.
const LOOKS_AT_KEYS: usize = 20;

/// So many times that number of logs are looked at one after the other.
const LOG_PAGES: usize = 100;

/// What there is to do every minute, in this order. Each does without the others: one that fails is told of and tried again a minute later.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chore {
    MakeDays,
    DeleteOld,
    DeleteEarly,
    DeleteDead,
    ForgetKeys,
    FreeKeys,
    ForgetWorkers,
    ForgetWaiters,
    ForgetProgress,
    ForgetTicks,
    ForgetStarts,
    DropDays,
    /// After that: what could not be dropped stays.
    ThinDays,
    /// Once their jobs are gone.
    ForgetLanes,
    /// What those said that have ended meanwhile.
    AddUp,
    ForgetTotals,
    ForgetLogs,
    ForgetSteps,
    ForgetSignals,
    ForgetChildren,
    ForgetGathers,
    ForgetNodes,
}

impl Chore {
    pub(super) const ALL: [Self; 22] = [
        Self::MakeDays,
        Self::DeleteOld,
        Self::DeleteEarly,
        Self::DeleteDead,
        Self::ForgetKeys,
        Self::FreeKeys,
        Self::ForgetWorkers,
        Self::ForgetWaiters,
        Self::ForgetProgress,
        Self::ForgetTicks,
        Self::ForgetStarts,
        Self::DropDays,
        Self::ThinDays,
        Self::ForgetLanes,
        Self::AddUp,
        Self::ForgetTotals,
        Self::ForgetLogs,
        Self::ForgetSteps,
        Self::ForgetSignals,
        Self::ForgetChildren,
        Self::ForgetGathers,
        Self::ForgetNodes,
    ];

    /// Whether it makes or drops tables.
    pub(super) fn is_of_days(self) -> bool {
        matches!(self, Self::MakeDays | Self::DropDays)
    }

    /// What a log says when it fails.
    pub(super) fn failed(self) -> &'static str {
        match self {
            Self::MakeDays => "cannot make days ahead now; trying again in a minute",
            Self::DeleteOld => "cannot delete history that is over now; trying again in a minute",
            Self::DeleteEarly => "cannot delete the history of job types that are kept for less now; trying again in a minute",
            Self::DeleteDead => "cannot delete old dead letters now; trying again in a minute",
            Self::ForgetKeys => "cannot delete uniqueness keys that nobody holds now; trying again in a minute",
            Self::FreeKeys => "cannot free ordering keys whose first job is gone now; trying again in a minute",
            Self::ForgetWorkers => "cannot delete the rows of silent workers now; trying again in a minute",
            Self::ForgetWaiters => "cannot delete the rows of processes that wait no longer now; trying again in a minute",
            Self::ForgetProgress => "cannot delete the progress of jobs that are over now; trying again in a minute",
            Self::ForgetTicks => "cannot delete what came of old ticks of schedules now; trying again in a minute",
            Self::ForgetStarts => "cannot forget when jobs began under limits with a rate now; trying again in a minute",
            Self::DropDays => "cannot drop days that are over now; trying again in a minute",
            Self::ThinDays => "cannot delete what is over in days that stay now; trying again in a minute",
            Self::ForgetLanes => "cannot forget lanes that nobody uses now; trying again in a minute",
            Self::AddUp => "cannot add up what came of attempts now; trying again in a minute",
            Self::ForgetTotals => "cannot delete old figures of what came of attempts now; trying again in a minute",
            Self::ForgetLogs => "cannot delete the logs of jobs that are gone now; trying again in a minute",
            Self::ForgetSteps => "cannot delete the steps of jobs that are gone now; trying again in a minute",
            Self::ForgetSignals => "cannot delete the signals to jobs that are gone now; trying again in a minute",
            Self::ForgetChildren => "cannot tell of children or forget those of jobs that are gone now; trying again in a minute",
            Self::ForgetGathers => "cannot count what jobs have mapped or forget that of jobs that are gone now; trying again in a minute",
            Self::ForgetNodes => "cannot tell of nodes of flows or forget those of jobs that are gone now; trying again in a minute",
        }
    }

    pub(super) async fn run(self, connection: &mut PgConnection, config: &Config) -> sqlx::Result<()> {
        let (store, seconds) = (config.store, config.retention.as_secs_f64());
        match self {
            Self::MakeDays => {
                let made = sqlx::query_scalar::<_, i32>(store.sql(include_str!("../../sql/add_days.sql"))).bind(DAYS_AHEAD);
                bounded(made.fetch_one(connection)).await.map(drop)
            }
            Self::DeleteOld => delete_old(connection, store, seconds).await,
            Self::DeleteEarly => delete_early(connection, store, seconds).await,
            Self::DeleteDead => match config.dead_retention {
                Some(retention) => delete_dead(connection, store, retention).await,
                None => Ok(()),
            },
            Self::ForgetKeys => forget_keys(connection, store).await,
            Self::FreeKeys => free_keys(connection, store).await,
            Self::ForgetWorkers => forget_workers(connection, store, &[]).await,
            Self::ForgetWaiters => {
                bounded(sqlx::query(store.sql(include_str!("../../sql/prune_waiters.sql"))).execute(connection)).await.map(drop)
            }
            Self::ForgetProgress => prune_progress(connection, store).await,
            Self::ForgetTicks => forget_ticks(connection, store, seconds).await,
            Self::ForgetStarts => {
                bounded(sqlx::query(store.sql(include_str!("../../sql/prune_rates.sql"))).execute(connection)).await.map(drop)
            }
            Self::DropDays => drop_days(connection, store, seconds).await,
            Self::ThinDays => thin_days(connection, store, seconds).await,
            Self::ForgetLanes => forget_lanes(connection, store, config.retention).await,
            Self::AddUp => roll_up(connection, store).await,
            Self::ForgetTotals => prune_totals(connection, store).await,
            Self::ForgetLogs => forget_orphans(connection, store, include_str!("../../sql/prune_logs.sql"), config.retention).await,
            Self::ForgetSteps => forget_orphans(connection, store, include_str!("../../sql/prune_steps.sql"), config.retention).await,
            Self::ForgetSignals => forget_orphans(connection, store, include_str!("../../sql/prune_signals.sql"), config.retention).await,
            Self::ForgetChildren => forget_orphans(connection, store, include_str!("../../sql/prune_children.sql"), config.retention).await,
            Self::ForgetGathers => forget_orphans(connection, store, include_str!("../../sql/prune_gathers.sql"), config.retention).await,
            Self::ForgetNodes => forget_orphans(connection, store, include_str!("../../sql/prune_nodes.sql"), config.retention).await,
        }
    }
}

/// The job types that have a retention of their own, and whether it is shorter than the store's.
async fn kept_types(connection: &mut PgConnection, store: Store, seconds: f64) -> sqlx::Result<Vec<(String, bool)>> {
    let kept = sqlx::query_as(store.sql(include_str!("../../sql/kept_types.sql"))).bind(seconds);
    bounded(kept.fetch_all(connection)).await
}

async fn delete_old(connection: &mut PgConnection, store: Store, seconds: f64) -> sqlx::Result<()> {
    let kept = kept_types(connection, store, seconds).await?;
    // The same but for the types: without any, it need not look at those of its jobs.
    let over = if kept.is_empty() { include_str!("../../sql/prune_done.sql") } else { include_str!("../../sql/prune_kept.sql") };
    while {
        let over = sqlx::query_scalar::<_, i64>(store.sql(over)).bind(seconds).bind(MOST);
        bounded(over.fetch_one(&mut *connection)).await? >= MOST
    } {}
    Ok(())
}

async fn delete_early(connection: &mut PgConnection, store: Store, seconds: f64) -> sqlx::Result<()> {
    let kept = kept_types(connection, store, seconds).await?;
    for (job_type, _) in kept.iter().filter(|(_, is_shorter)| *is_shorter) {
        while {
            let early =
                sqlx::query_scalar::<_, bool>(store.sql(include_str!("../../sql/prune_early.sql"))).bind(job_type).bind(MOST).bind(seconds);
            bounded(early.fetch_optional(&mut *connection)).await? == Some(true)
        } {}
    }
    Ok(())
}

async fn delete_dead(connection: &mut PgConnection, store: Store, retention: Duration) -> sqlx::Result<()> {
    while {
        let dead = sqlx::query_scalar::<_, i64>(store.sql(include_str!("../../sql/prune_dead.sql")));
        bounded(dead.bind(retention.as_secs_f64()).bind(MOST).fetch_one(&mut *connection)).await? >= MOST
    } {}
    Ok(())
}

async fn forget_ticks(connection: &mut PgConnection, store: Store, seconds: f64) -> sqlx::Result<()> {
    while {
        let gone = sqlx::query_scalar::<_, i64>(store.sql(include_str!("../../sql/prune_fires.sql"))).bind(seconds).bind(MOST);
        bounded(gone.fetch_one(&mut *connection)).await? >= MOST
    } {}
    Ok(())
}

async fn drop_days(connection: &mut PgConnection, store: Store, seconds: f64) -> sqlx::Result<()> {
    while {
        let dropped = sqlx::query_scalar::<_, bool>(store.sql(include_str!("../../sql/drop_day.sql"))).bind(seconds);
        bounded(dropped.fetch_one(&mut *connection)).await?
    } {}
    Ok(())
}

/// Deletes what is over in days that stay because many of their jobs outlive them.
async fn thin_days(connection: &mut PgConnection, store: Store, seconds: f64) -> sqlx::Result<()> {
    let mut from = Some(JobId(i64::MIN));
    while let Some(begin) = from {
        let page = sqlx::query_scalar::<_, Option<JobId>>(store.sql(include_str!("../../sql/prune_days.sql")));
        from = bounded(page.bind(seconds).bind(begin).bind(MOST).fetch_optional(&mut *connection)).await?.flatten();
    }
    Ok(())
}

/// What the worker that ran the job did not clear, because it ended first.
async fn prune_progress(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    let mut after = JobId(0);
    loop {
        let page = sqlx::query_scalar(store.sql(include_str!("../../sql/progress_page.sql"))).bind(after).bind(MOST);
        let ids: Vec<JobId> = bounded(page.fetch_all(&mut *connection)).await?;
        let Some(last) = ids.last() else { return Ok(()) };
        after = *last;
        let clear = sqlx::query(store.sql(include_str!("../../sql/clear_progress.sql"))).bind(&ids);
        bounded(clear.execute(&mut *connection)).await?;
    }
}

/// Looks at all logs, steps or signals, if they are not very many; of more at the oldest, and from some job on that is drawn from a retention's worth of them.
async fn forget_orphans(connection: &mut PgConnection, store: Store, statement: &'static str, retention: Duration) -> sqlx::Result<()> {
    let mut after = JobId(0);
    for page in 1..=2 * LOG_PAGES {
        let prune = sqlx::query_scalar(store.sql(statement)).bind(after).bind(KEYS);
        let Some(last): Option<JobId> = bounded(prune.fetch_one(&mut *connection)).await? else { return Ok(()) };
        let drawn = || (retention.mul_f64(fastrand::f64()).as_millis() as i64) << 20;
        after = if page == LOG_PAGES { JobId(last.0.saturating_add(drawn())) } else { last };
    }
    Ok(())
}

/// Looks at some keys, and at more as long as a quarter of them is held no more: so there are never many such, and a large table of keys that
/// are held costs little.
async fn forget_keys(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    for _ in 0..MOST_LOOKS {
        let gone = sqlx::query_scalar::<_, i32>(store.sql(include_str!("../../sql/forget_keys.sql"))).bind(KEYS);
        if bounded(gone.fetch_one(&mut *connection)).await? < KEYS / 4 {
            break;
        }
    }
    Ok(())
}

/// The last key that was looked at; and of one that was freed the head that is gone, the first job that waits, its queue and its type.
type FreedKey = (Option<i64>, Option<JobId>, Option<JobId>, Option<String>, Option<String>);

/// Frees ordering keys whose first job is gone. Checks a part of the keys with blocked jobs, from a random one on, wrapping round at the end.
async fn free_keys(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    let (mut after, mut is_round) = (fastrand::i64(..), false);
    for _ in 0..LOOKS_AT_KEYS {
        let freed = sqlx::query_as(store.sql(include_str!("../../sql/free_keys.sql"))).bind(after).bind(KEYS);
        let freed: Vec<FreedKey> = bounded(freed.fetch_all(&mut *connection)).await?;
        for (_, head, job, queue, job_type) in &freed {
            if let Some((head, job)) = head.zip(*job) {
                tracing::warn!(%head, %job, queue, job_type, "the first job of an ordering key was gone, deleted by hand; the key was freed and goes on");
            }
        }
        after = match freed.first().and_then(|row| row.0) {
            Some(last) => last,
            None if is_round => break,
            None => i64::MIN,
        };
        is_round |= after == i64::MIN;
    }
    Ok(())
}
