//! Expires jobs that have not started by their expiry, which is the deadline for their start. Any worker can expire jobs, and the database
//! clock determines which jobs are overdue.
//!
//! Correctness does not depend on how soon a job is expired. A claim checks the deadline, so an overdue job never starts. The housekeeper
//! probes for overdue jobs about every second. This module then expires the jobs with the SQL function `queue.expire_due`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use queue_core::{JobId, Store};
use sqlx::FromRow;

use crate::{
    error::warn_throttled,
    live::{Notifier, StoreConnection, bounded, jittered},
    tally::MetricsBuffer,
};

/// Maximum number of rows that a statement checks.
const MAX_ROWS: i32 = 1000;

/// Lower bound of the next scan for overdue jobs. Below the bound, the index contains dead entries, and occasionally jobs whose
/// deadline was already below the bound when they were committed.
#[derive(Default)]
pub(crate) struct ExpiryFloor {
    first: Option<DateTime<Utc>>,
    /// Earliest start of the next scan without the lower bound. Limits such scans to about 5 % of the time.
    full_scan_at: Option<Instant>,
}

impl ExpiryFloor {
    /// Returns the lower bound of a scan that starts at `now`, or `None` for a scan without a bound.
    pub(super) fn floor(&self, now: Instant) -> Option<DateTime<Utc>> {
        self.first.filter(|_| self.full_scan_at.is_some_and(|zero| now < zero))
    }

    /// Records the earliest passed deadline that a scan found. If the scan had no lower bound, schedules the next such scan. `began` is
    /// the start time of the scan.
    pub(super) fn record(&mut self, began: Instant, first: Option<DateTime<Utc>>) {
        if self.floor(began).is_none() {
            self.full_scan_at = Some(Instant::now() + 20 * began.elapsed());
        }
        self.first = first.or(self.first);
    }
}

/// Result of one expiry statement: number of checked rows, their earliest deadline, expired jobs, and jobs that cannot expire.
#[derive(FromRow)]
struct ExpiryResult {
    hints: i32,
    lowest: Option<DateTime<Utc>>,
    expired: Vec<JobId>,
    /// Jobs that cannot expire because a table rejects their rows.
    refused: Vec<JobId>,
}

/// Expires overdue jobs and never returns. Does not connect while no job is overdue.
pub(crate) async fn run_expiry(mut link: StoreConnection, store: Store, notifier: Arc<Notifier>, metrics: MetricsBuffer) {
    let mut floor = ExpiryFloor::default();
    loop {
        notifier.wait_for_expiries().await;
        loop {
            match expire_due(&mut link, store, &mut floor).await {
                Ok(result) => {
                    metrics.report_expired(&result.expired);
                    for job in result.refused {
                        tracing::warn!(%job, "an overdue job cannot expire: its rows are refused; retrying later; fix or cancel the job");
                    }
                    if result.hints < MAX_ROWS {
                        break;
                    }
                }
                Err(error) => {
                    warn_throttled(&error, "cannot expire overdue jobs; retrying");
                    tokio::time::sleep(jittered(Duration::from_millis(500))).await;
                    break;
                }
            }
        }
    }
}

async fn expire_due(link: &mut StoreConnection, store: Store, floor: &mut ExpiryFloor) -> sqlx::Result<ExpiryResult> {
    let began = Instant::now();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/expire_due.sql"))).bind(floor.floor(began)).bind(MAX_ROWS);
    let result: sqlx::Result<ExpiryResult> = match link.get().await {
        Ok(connection) => bounded(statement.fetch_one(connection)).await,
        Err(error) => Err(error),
    };
    // A failure resets the floor, because the next connection may reach a server on which jobs below the floor have not expired yet.
    let result = link.note(result).inspect_err(|_| *floor = ExpiryFloor::default())?;
    floor.record(began, result.lowest);
    Ok(result)
}
