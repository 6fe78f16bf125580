//! Schedule loop, which sleeps until the next tick of any schedule and fires due ticks. Every worker runs this loop, and `queue.fire_ticks`
//! ensures that each tick is fired once.
//!
//! The database supplies the time, and `queue_core` computes the ticks of a cron expression. One statement fires the ticks of many
//! schedules. A failed schedule is deferred and retried separately, after all other schedules. Without schedules, the loop holds no
//! connection.

mod deferred;
mod declare;
mod request;

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{Store, runner::Timing, schedule::Declaration};
use sqlx::PgConnection;
use tokio::sync::watch;

use self::{
    declare::Declarations,
    deferred::DeferredSchedules,
    request::{FireOutcome, FireRequest, LoadedSchedule, send_requests},
};
use crate::{
    error::warn_throttled,
    live::{Config, Identity, Notifier, StoreConnection, bounded, jittered},
};

/// Connection and state of the schedule loop.
pub(crate) struct ScheduleLoop {
    link: StoreConnection,
    config: Config,
    notifier: Arc<Notifier>,
    identity: watch::Receiver<Identity>,
    declarations: Declarations,
    /// Parsed cron expressions and intervals, by definition number.
    timings: HashMap<i64, Result<Timing, String>>,
    deferred: DeferredSchedules,
    /// Time of the last warning about overlapping ticks, by schedule.
    overlaps: HashMap<String, Instant>,
}

/// Maximum number of schedules loaded per page.
const PAGE_SIZE: usize = 500;

/// Maximum number of schedules whose ticks one statement fires. These schedules share one WAL flush. Their jobs become visible only after
/// the statement has processed all schedules.
const MAX_PER_STATEMENT: usize = 50;

/// Lock timeout in milliseconds for a statement that fires several schedules. After a timeout, a separate statement fires each schedule.
const SHARED_LOCK_TIMEOUT_MS: i32 = 1;

/// Minimum time between two warnings about overlapping ticks of the same schedule.
const OVERLAP_WARNING_INTERVAL: Duration = Duration::from_hours(1);

/// Maximum time between two polls for due ticks. Limits the delay after a lost notification.
const MAX_SLEEP: Duration = Duration::from_secs(10);

/// Returns whether the store has an active schedule, which is neither paused nor withdrawn nor failed.
pub(super) async fn any_schedule(connection: &mut PgConnection, store: Store) -> sqlx::Result<bool> {
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/any_schedule.sql")));
    bounded(statement.fetch_one(connection)).await
}

/// Result of a poll, which determines the next action of the schedule loop.
enum PollResult {
    /// No schedule has a future tick. The loop waits for a notification.
    NoSchedules,
    /// Ticks were fired, and more ticks may be due. The loop polls again immediately.
    Continue,
    /// The next tick is due after the given duration. The loop sleeps until then.
    Wait(Duration),
}

/// Fires due ticks and never returns.
pub(crate) async fn run_schedules(mut ticks: ScheduleLoop) {
    let declares = !ticks.declarations.is_empty();
    if declares {
        let _ = ticks.identity.wait_for(Option::is_some).await;
    } else {
        ticks.notifier.wait_for_schedules().await;
    }
    loop {
        let result = ticks.poll().await;
        let pause = match ticks.link.note(result) {
            Ok(PollResult::Continue) => continue,
            Ok(PollResult::Wait(wait)) => wait.min(MAX_SLEEP),
            Ok(PollResult::NoSchedules) if !declares => {
                let idle = ticks.link.another();
                std::mem::replace(&mut ticks.link, idle).close().await;
                ticks.notifier.wait_for_schedules().await;
                continue;
            }
            Ok(PollResult::NoSchedules) => MAX_SLEEP,
            Err(error) => {
                warn_throttled(&error, "cannot fire schedules; retrying");
                // The next connection may reach another server, for example after a failover that lost transactions. That server may
                // assign the same definition numbers to other definitions.
                ticks.timings.clear();
                jittered(Duration::from_millis(250))
            }
        };
        let _ = tokio::time::timeout(pause.min(ticks.declarations.due_in()), ticks.notifier.wait_for_schedules()).await;
    }
}

impl ScheduleLoop {
    /// Creates a schedule loop. `declares` contains the names and declarations of this worker's schedules.
    pub(crate) fn new(
        link: StoreConnection,
        config: &Config,
        notifier: &Arc<Notifier>,
        identity: watch::Receiver<Identity>,
        declares: Vec<(String, Declaration)>,
    ) -> Self {
        let declarations = Declarations::new(declares, config);
        let (timings, deferred, overlaps) = Default::default();
        let link = link.brief();
        Self { link, config: config.clone(), notifier: Arc::clone(notifier), identity, declarations, timings, deferred, overlaps }
    }

    /// Returns a schedule loop with the same settings but a new connection. Other state is reset.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.link.another(), &self.config, &self.notifier, self.identity.clone(), self.declarations.own.clone())
    }

    /// Fires due ticks, and finally retries one schedule that failed before. Reads another page as long as a full page contains only
    /// deferred schedules, which would otherwise hide other due schedules.
    async fn poll(&mut self) -> sqlx::Result<PollResult> {
        let own = *self.identity.borrow();
        self.declarations.refresh(&mut self.link, own).await;
        if self.timings.len() > 4 * PAGE_SIZE {
            self.timings.clear();
        }
        let (mut last, mut wait, mut failed) = (None::<LoadedSchedule>, MAX_SLEEP, None);
        let mut fresh = Vec::new();
        loop {
            let page = LoadedSchedule::page(&mut self.link, self.config.store, PAGE_SIZE, last.as_ref()).await?;
            let is_full = page.len() == PAGE_SIZE;
            let Some(end) = page.last().cloned() else { break };
            for plan in page {
                let rest = plan.due_in().or_else(|| self.deferred.remaining_delay(&plan));
                match rest {
                    Some(rest) => wait = wait.min(rest),
                    None if self.deferred.has_failed(&plan) => failed = failed.or(Some(plan)),
                    None => fresh.push(plan),
                }
            }
            let all_are_due = end.due_in().is_none();
            last = Some(end);
            if !fresh.is_empty() || !is_full || !all_are_due {
                break;
            }
        }
        if last.is_none() {
            return Ok(PollResult::NoSchedules);
        }
        // Each worker starts at a random schedule, so that workers share the ticks that are due at the same moment.
        let first = fastrand::usize(..=fresh.len());
        fresh.rotate_left(first);
        for some in fresh.chunks(MAX_PER_STATEMENT) {
            self.fire_due(some, SHARED_LOCK_TIMEOUT_MS).await?;
        }
        if let Some(plan) = &failed {
            self.fire_due(std::slice::from_ref(plan), self.deferred.lock_timeout_ms(plan)).await?;
        }
        Ok(if fresh.is_empty() && failed.is_none() { PollResult::Wait(wait) } else { PollResult::Continue })
    }

    /// Fires the due ticks of the schedules in `plans`. If the statement fails, fires each schedule separately and defers the schedules
    /// that fail. Returns an error only if the connection fails.
    async fn fire_due(&mut self, plans: &[LoadedSchedule], lock_timeout_ms: i32) -> sqlx::Result<()> {
        let mut requests = Vec::with_capacity(plans.len());
        for (plan, request) in plans.iter().zip(self.prepare_requests(plans.to_vec()).await) {
            if let Some(request) = request {
                requests.push(request);
            } else {
                // This release cannot read the schedule. The workers that declared the schedule run another release and fire its ticks.
                self.deferred.defer_unreadable(plan);
                tracing::warn!(name = plan.name, "a schedule declared by other workers cannot be read; leaving it to them");
            }
        }
        if self.fire(&requests, lock_timeout_ms).await? || requests.len() < 2 {
            return Ok(());
        }
        for one in requests.chunks(1) {
            self.fire(one, lock_timeout_ms).await?;
        }
        Ok(())
    }

    /// Computes the due ticks of schedules on Tokio's blocking thread pool. Computing a tick may take milliseconds, and the current thread
    /// also runs the worker's other loops.
    async fn prepare_requests(&mut self, plans: Vec<LoadedSchedule>) -> Vec<Option<FireRequest>> {
        let mut timings = std::mem::take(&mut self.timings);
        let search = move || {
            let mut prepare = |plan: &LoadedSchedule| {
                let search = || plan.request(timings.entry(plan.definition).or_insert_with(|| plan.timing()));
                // A panic affects only the schedule that caused it.
                catch_unwind(AssertUnwindSafe(search)).unwrap_or_else(|_| plan.request(&Err("computing its ticks panicked".to_owned())))
            };
            let result = plans.iter().map(&mut prepare).collect();
            (result, timings)
        };
        // The closure catches panics of the computation, and nothing cancels the task. Joining the task therefore succeeds.
        let (result, timings) = tokio::task::spawn_blocking(search).await.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        self.timings = timings;
        result
    }

    /// Fires the requested ticks in one statement. Returns whether the statement succeeded. If a statement for a single schedule fails,
    /// the schedule is deferred.
    async fn fire(&mut self, requests: &[FireRequest], lock_timeout_ms: i32) -> sqlx::Result<bool> {
        if requests.is_empty() {
            return Ok(true);
        }
        // The connection is opened first, so that a connection failure is returned and defers no schedule.
        self.link.get().await?;
        let result = send_requests(&mut self.link, self.config.store, requests, lock_timeout_ms).await;
        match (self.link.note(result), requests) {
            (Ok(fired), _) => {
                for (place, request) in (1..).zip(requests) {
                    self.handle_outcomes(request, fired.iter().filter(|fired| fired.place == place), lock_timeout_ms);
                }
                Ok(true)
            }
            (Err(error), _) if self.link.is_new() && !is_timeout(&error) => Err(error),
            (Err(error), [one]) => {
                self.record_failed_try(one, &queue_core::message(&error), lock_timeout_ms).await?;
                Ok(false)
            }
            (Err(_), _) => Ok(false),
        }
    }

    /// Records a failed attempt to fire a schedule, after its statement was rolled back. The first failed attempt starts the grace period.
    async fn record_failed_try(&mut self, request: &FireRequest, why: &str, lock_timeout_ms: i32) -> sqlx::Result<()> {
        self.link.get().await?;
        let result = send_requests(&mut self.link, self.config.store, &[request.failed_try(why)], lock_timeout_ms).await;
        match self.link.note(result) {
            Ok(outcomes) if !outcomes.is_empty() => self.handle_outcomes(request, outcomes.iter(), lock_timeout_ms),
            Err(error) if self.link.is_new() => return Err(error),
            _ => self.defer_failed(&request.plan, why, lock_timeout_ms),
        }
        Ok(())
    }

    /// Handles the tick outcomes of one schedule.
    fn handle_outcomes<'f>(
        &mut self,
        FireRequest { plan, why, .. }: &FireRequest,
        fired: impl Iterator<Item = &'f FireOutcome>,
        lock_timeout_ms: i32,
    ) {
        let (mut any, mut failed) = (false, false);
        for FireOutcome { tick, outcome, job, why, .. } in fired {
            any = true;
            let (tick, why) = (tick.map(|tick| tick.to_rfc3339()), why.as_deref());
            match outcome.as_str() {
                "raised" => return self.defer_failed(plan, why.unwrap_or_default(), lock_timeout_ms),
                "failed" => {
                    failed = true;
                    tracing::warn!(
                        name = plan.name,
                        tick,
                        why,
                        "the job of a schedule cannot be enqueued; fix the schedule, or the cause and run it now"
                    );
                }
                "overlapped" => self.warn_overlap(&plan.name, why),
                _ if job.is_some() => self.notifier.request_probe(),
                _ => {}
            }
        }
        match why {
            // If there is no outcome, other workers have fired the due ticks, or the schedule's row is locked.
            _ if !any => {
                if self.deferred.defer_locked(plan) {
                    tracing::warn!(
                        name = plan.name,
                        "a schedule is late: an open transaction has locked it for a minute; end the transaction"
                    );
                }
            }
            Some(why) => tracing::error!(name = plan.name, why, "a schedule is invalid and has no more ticks; create it again"),
            None => self.deferred.remove(plan, failed),
        }
    }

    /// Warns about overlapping ticks, at most once an hour per schedule.
    fn warn_overlap(&mut self, name: &str, why: Option<&str>) {
        self.overlaps.retain(|_, warned_at| warned_at.elapsed() < OVERLAP_WARNING_INTERVAL);
        if !self.overlaps.contains_key(name) {
            self.overlaps.insert(name.to_owned(), Instant::now());
            tracing::warn!(
                name,
                why,
                "a schedule skips its ticks: the job of an earlier tick has not finished; cancel that job, or fix it and run it now"
            );
        }
    }

    /// Defers a schedule after a failure. Logs the failure unless the schedule is retried immediately.
    fn defer_failed(&mut self, plan: &LoadedSchedule, why: &str, lock_timeout_ms: i32) {
        let wait = self.deferred.defer_failed(plan, lock_timeout_ms > SHARED_LOCK_TIMEOUT_MS);
        if !wait.is_zero() {
            let tick = plan.next_at.map(|tick| tick.to_rfc3339());
            tracing::warn!(
                name = plan.name,
                tick,
                why,
                again_in_s = wait.as_secs(),
                "the job of a schedule cannot be enqueued; retrying until its grace period has passed since the first try"
            );
        }
    }
}

/// Returns whether a statement timed out. A single schedule can cause a timeout. A timeout is therefore not treated as a connection
/// failure, and the other schedules are still fired.
fn is_timeout(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::TimedOut)
}
