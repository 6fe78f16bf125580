//! Loaded schedules, requests to fire their ticks, and the outcomes of the ticks.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use queue_core::{
    JobId, Store,
    runner::{DueTicks, Timing},
    schedule::Missed,
};
use sqlx::FromRow;

use crate::live::{StoreConnection, after_ms, bounded};

/// Active schedule, as loaded from the store.
#[derive(Clone, FromRow)]
pub(super) struct LoadedSchedule {
    pub(super) name: String,
    pub(super) definition: i64,
    source: String,
    cron: Option<String>,
    every_ms: Option<f64>,
    tz: String,
    missed: String,
    grace_ms: f64,
    since: DateTime<Utc>,
    pub(super) next_at: Option<DateTime<Utc>>,
    skip_at: Option<DateTime<Utc>>,
    /// Time at which a worker first failed to fire the next tick. `None` if no attempt has failed.
    pub(super) tried_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
}

/// Request to fire the due ticks of a schedule.
#[derive(Clone)]
pub(super) struct FireRequest {
    pub(super) plan: LoadedSchedule,
    due: DueTicks,
    /// Reason why the schedule has no further ticks, or why an attempt to fire the ticks failed. `None` for other requests.
    pub(super) why: Option<String>,
}

/// Outcome of one tick.
#[derive(FromRow)]
pub(super) struct FireOutcome {
    /// Position of the schedule's request in the statement, starting at 1.
    pub(super) place: i64,
    pub(super) tick: Option<DateTime<Utc>>,
    pub(super) outcome: String,
    pub(super) job: Option<JobId>,
    pub(super) why: Option<String>,
}

impl LoadedSchedule {
    /// Loads a page of at most `limit` schedules that follow `after`, in the order of their next ticks.
    pub(super) async fn page(link: &mut StoreConnection, store: Store, limit: usize, after: Option<&Self>) -> sqlx::Result<Vec<Self>> {
        let statement = sqlx::query_as(store.sql(include_str!("../../../sql/ticks.sql")))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(after.and_then(|after| after.next_at))
            .bind(after.map_or("", |after| after.name.as_str()));
        bounded(statement.fetch_all(link.get().await?)).await
    }

    pub(super) fn timing(&self) -> Result<Timing, String> {
        Timing::new(self.cron.as_deref(), self.every_ms.map(|ms| Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default()), &self.tz)
    }

    /// Returns the time until the next tick. Returns `None` if the tick is due or has not been computed yet.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let tick = self.next_at.filter(|tick| *tick > self.now)?;
        Some(after_ms((tick - self.now).as_seconds_f64() * 1000.0))
    }

    /// Returns the grace period, which is the maximum delay of a tick.
    pub(super) fn grace(&self) -> Duration {
        Duration::from_secs_f64((self.grace_ms.max(0.0) / 1000.0).min(1e9))
    }

    /// Returns the remaining grace period at the time the schedule was loaded. The grace period starts with the first failed attempt.
    pub(super) fn grace_left(&self) -> Duration {
        let tried_for = self.tried_at.and_then(|tried_at| (self.now - tried_at).to_std().ok()).unwrap_or_default();
        self.grace().saturating_sub(tried_for)
    }

    /// Returns a request to fire the due ticks, or `None` if no tick is due. Also returns `None` for a declared schedule that this release
    /// cannot read. Workers of another release fire this schedule, so it must not be marked as invalid.
    pub(super) fn request(&self, timing: &Result<Timing, String>) -> Option<FireRequest> {
        let nothing = |next| DueTicks { ticks: Vec::new(), action: "enqueue", next };
        let (due, why) = match (timing, self.next_at) {
            (Err(_), _) if self.source == "static" => return None,
            (Err(why), _) => (nothing(None), Some(why.clone())),
            (Ok(timing), None) => (nothing(timing.next(self.since)), None),
            (Ok(timing), Some(tick)) => {
                let missed = Missed::from_sql(&self.missed).unwrap_or_default();
                (timing.due(missed, self.grace(), tick, self.skip_at, self.now)?, None)
            }
        };
        Some(FireRequest { plan: self.clone(), due, why })
    }
}

impl FireRequest {
    /// Returns a request that records a failed attempt to fire the ticks. The statement of the failed attempt was rolled back.
    pub(super) fn failed_try(&self, why: &str) -> Self {
        let mut request = self.clone();
        (request.due.action, request.why) = ("fail", Some(why.to_owned()));
        request
    }
}

/// Fires the requested ticks in one transaction and returns their outcomes. The result omits schedules that are locked or
/// whose ticks other workers have fired.
pub(super) async fn send_requests(
    link: &mut StoreConnection,
    store: Store,
    requests: &[FireRequest],
    lock_timeout_ms: i32,
) -> sqlx::Result<Vec<FireOutcome>> {
    let ticks = |due: &DueTicks| {
        let ticks: Vec<String> = due.ticks.iter().map(|tick| tick.to_rfc3339_opts(SecondsFormat::Micros, true)).collect();
        format!("{{{}}}", ticks.join(","))
    };
    let statement = sqlx::query_as(store.sql(include_str!("../../../sql/fire.sql")))
        .bind(requests.iter().map(|it| it.plan.name.as_str()).collect::<Vec<_>>())
        .bind(requests.iter().map(|it| it.plan.definition).collect::<Vec<_>>())
        .bind(requests.iter().map(|it| it.plan.next_at).collect::<Vec<_>>())
        .bind(requests.iter().map(|it| ticks(&it.due)).collect::<Vec<_>>())
        .bind(requests.iter().map(|it| it.due.action).collect::<Vec<_>>())
        .bind(requests.iter().map(|it| it.due.next).collect::<Vec<_>>())
        .bind(requests.iter().map(|it| it.why.as_deref()).collect::<Vec<_>>())
        .bind(lock_timeout_ms);
    bounded(statement.fetch_all(link.get().await?)).await
}
