//! Execution of a job's attempt, including its timeout, panics, cancellation and result.
//!
//! Used by workers and by the test kit. This module executes no SQL itself. It takes claimed jobs and returns [`AttemptEnd`]s. Only
//! [`verdict`](crate::options::verdict) maps an outcome to a verdict.

mod batch;
mod claimed;
mod ended;
mod halt;
mod log;

use std::{
    future::poll_fn,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use tokio::time::{Sleep, sleep};
use tracing::{Instrument as _, Span};

pub use self::{batch::run_batch, claimed::ClaimedJob, ended::AttemptEnd, halt::Halt, log::OpenLog};
use crate::{
    context::{Context, Durable, EarlyExit, LogEntry, Registration, Shared, run_with_middleware},
    define::{Failure, Options, Outcome, Retain},
    trace,
};

/// Error text for a job whose payload row is missing.
const NO_PAYLOAD: &str = "the job's payload is missing from the store";

/// Maximum time that an ended attempt waits for a commit that is in progress. The verdict is fenced and therefore safe even if the wait
/// times out.
const MAX_COMMIT_WAIT: Duration = Duration::from_secs(15);

/// Maximum time that an ended attempt waits for its last progress reports to be written.
const MAX_REPORT_WAIT: Duration = Duration::from_secs(1);

/// Runs the handler until it returns, times out or is halted. The handler of a transactional job type runs in a transaction, which is
/// committed on success.
///
/// Panics in user code do not propagate. A panic while formatting an error or dropping a value also counts as a panic of the attempt.
/// `on_failure` receives the failure returned by the handler.
pub async fn run(
    registration: &Registration,
    job: &ClaimedJob,
    shared: &Arc<Shared>,
    halt: &Halt,
    on_failure: impl FnMut(Failure) + Send,
) -> AttemptEnd {
    if registration.takes_batches() {
        // The batch future is boxed to keep the futures of single-job attempts small.
        let ended = Box::pin(run_batch(registration, &[job], shared, halt, on_failure)).await;
        return ended.into_iter().next().unwrap_or_else(AttemptEnd::interrupted);
    }
    let Some(payload) = &job.payload else { return AttemptEnd::terminal(NO_PAYLOAD) };
    let log = registration.options().keep_logs.map(OpenLog::open);
    let span = || trace::attempt_span(&job.span_info(shared.trace));
    let span = log.as_ref().map_or_else(span, |log| log.offer(span));
    let recorder = trace::OutcomeRecorder::new(&span);
    let cx = Durable::new(context(registration, job, shared, halt));
    let running = AssertUnwindSafe(run_handler((registration, payload), job, &cx, halt, span, on_failure)).catch_unwind();
    let ended = running.await.unwrap_or_else(AttemptEnd::panicked);
    let ended = if halt.drop.is_cancelled() && ended.outcome() == Outcome::Panicked { AttemptEnd::interrupted() } else { ended };
    cx.flush(if halt.drop.is_cancelled() { Duration::ZERO } else { MAX_COMMIT_WAIT }).await;
    let mut ended =
        finish(ended.suspend_if_parked(cx.uncertain_retry_delay()), job, &cx, halt).await.with_last_journaled(cx.last_journaled());
    ended.record(recorder, registration.options());
    if let Some(log) = log {
        ended = ended.fix_end_time();
        let submission = submit_log(&log, &ended, job, registration.options(), shared, halt);
        // The first poll submits the log. A worker that is shutting down does not wait until the log is written.
        tokio::select! {
            biased;
            () = submission => {}
            () = halt.drop.cancelled() => {}
        }
    }
    ended
}

/// Submits the attempt's log, unless the lease was lost or the job leaves no record. Called before the outcome of the attempt is reported.
async fn submit_log(log: &OpenLog, ended: &AttemptEnd, job: &ClaimedJob, options: &Options, shared: &Shared, halt: &Halt) {
    if !log.is_taken() {
        return log::warn_missing_collector(options.name);
    }
    // A completed job that leaves no record keeps no logs. Housekeeping deletes logs of earlier attempts after the job was deleted.
    let leaves_no_record = ended.outcome() == Outcome::Ok && options.retain == Retain::None;
    let Some(excerpt) = log.close().filter(|_| !leaves_no_record && (ended.is_written() || !ended.is_over())) else { return };
    let token = (!ended.is_written()).then_some(job.token);
    let entry = LogEntry { token, id: job.id, attempt: job.attempt, cut: excerpt.cut, text: excerpt.text };
    shared.backend.keep_log(entry, !halt.drop.is_cancelled()).await;
}

fn context(registration: &Registration, job: &ClaimedJob, shared: &Arc<Shared>, halt: &Halt) -> Context {
    let attempts = (job.number(), job.most_attempts());
    let mut cx = Context::new(job.fence(registration), job.job_type, attempts, Arc::clone(&halt.stop_request), Arc::clone(shared));
    cx.set_claim(job.version, job.meta.clone(), job.system.clone(), job.claimed_at);
    cx.set_start_deadline(job.start_deadline);
    cx
}

/// Finishes an attempt whose handler has ended: waits for the attempt's reports, applies a cancellation, and waits for the attempt's
/// commit. A commit takes precedence over a cancellation.
async fn finish(ended: AttemptEnd, job: &ClaimedJob, cx: &Context, halt: &Halt) -> AttemptEnd {
    if let Some(report) = cx.report() {
        let max_wait = if halt.drop.is_cancelled() { Duration::ZERO } else { MAX_REPORT_WAIT };
        report.end(max_wait).await;
    }
    // The result of a cancelled attempt counts only if it completed the job.
    let ended = if ended.outcome() != Outcome::Ok && halt.is_cancelled(job) { AttemptEnd::cancelled() } else { ended };
    match cx.transactions() {
        Some(tracker) => ended.with_commit(tracker.close(MAX_COMMIT_WAIT).await, tracker.committed_outcome(), job.id),
        None => ended,
    }
}

/// Runs the handler until it returns, times out or is dropped.
async fn run_handler(
    (registration, payload): (&Registration, &str),
    job: &ClaimedJob,
    cx: &Durable,
    halt: &Halt,
    span: Span,
    mut on_failure: impl FnMut(Failure),
) -> AttemptEnd {
    if registration.options().durable
        && let Err(error) = cx.load().await
    {
        return AttemptEnd::failed(format!("failed to read the job's journal: {error}"));
    }
    if registration.options().transactional {
        tokio::select! {
            result = Box::pin(cx.begin_transaction()) => if let Err(error) = result {
                return AttemptEnd::failed(format!("failed to begin the job's transaction: {error}"));
            },
            () = halt.drop.cancelled() => return AttemptEnd::interrupted(),
        }
    }
    let running = async {
        let output = run_with_middleware(registration, payload, cx).await?;
        if registration.options().transactional {
            // The commit future is boxed to keep the futures of attempts without a transaction small.
            Box::pin(cx.commit_transaction(output.as_deref())).await?;
        }
        Ok(output)
    };
    let running = running.instrument(span);
    let limited = async {
        match registration.options().timeout {
            Some(limit) => tokio::time::timeout(limit, running).await.map_err(|_| limit),
            None => Ok(running.await),
        }
    };
    let mut limited = pin!(limited);
    let result = loop {
        if let Some(changed) = halt.changed(job) {
            tokio::select! {
                biased;
                result = &mut limited => break result,
                ended = early_end(cx) => return ended,
                () = changed.cancelled() => if halt.drop.is_cancelled() { return AttemptEnd::interrupted() },
            }
        } else {
            cx.cancelled().cancel_job();
            tokio::select! {
                biased;
                result = &mut limited => break result,
                ended = early_end(cx) => return ended,
                () = halt.drop.cancelled() => return AttemptEnd::interrupted(),
                () = tokio::time::sleep(halt.grace) => return AttemptEnd::cancelled(),
            }
        }
    };
    match result {
        // A missed start deadline takes precedence over the result of middleware.
        _ if cx.missed_start_deadline() => AttemptEnd::interrupted(),
        Ok(Ok(output)) => AttemptEnd::returned(Ok(output), false),
        Ok(Err(failure)) => {
            let ended = AttemptEnd::returned(Err(&failure), cx.is_stop_requested());
            on_failure(failure);
            ended
        }
        Err(limit) => AttemptEnd::new(Outcome::TimedOut, format!("timed out after {limit:?}")),
    }
}

/// Resolves when the attempt must exit early: the start deadline was missed, or the handler is waiting, has restarted the job, or failed to
/// wait or to restart the job. These conditions are checked after each poll of the attempt.
async fn early_end(cx: &Durable) -> AttemptEnd {
    let mut idle: Option<IdleTimer> = None;
    let poll = |task: &mut std::task::Context<'_>| {
        if cx.missed_start_deadline() {
            return Poll::Ready(AttemptEnd::interrupted());
        }
        match cx.early_exit() {
            None => idle = None,
            Some(EarlyExit::Parked(wait, signals)) => {
                if idle.get_or_insert_with(IdleTimer::start).poll_elapsed(task) {
                    return Poll::Ready(AttemptEnd::parked(wait, signals));
                }
            }
            Some(EarlyExit::Restarted(restart)) => return Poll::Ready(AttemptEnd::restarted(restart)),
            Some(EarlyExit::Broken(failure)) => return Poll::Ready(AttemptEnd::returned(Err(&failure), false)),
            Some(EarlyExit::Suspended(wait)) => {
                if idle.get_or_insert_with(IdleTimer::start).poll_elapsed(task) {
                    return Poll::Ready(AttemptEnd::suspended(wait));
                }
            }
        }
        Poll::Pending
    };
    poll_fn(poll).await
}

/// Idle time before a waiting handler is suspended. During that time, code that runs concurrently with the wait can start a step.
const MIN_IDLE: Duration = Duration::from_millis(100);

/// Maximum time before a waiting handler is suspended, even if it is not idle.
const MAX_ACTIVE: Duration = Duration::from_secs(5);

/// Timer that measures how long a waiting handler has been idle.
struct IdleTimer {
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl IdleTimer {
    fn start() -> Self {
        Self { since: Instant::now(), timer: Box::pin(sleep(MIN_IDLE)) }
    }

    /// Returns whether the handler has been idle for long enough. A poll that was not caused by this timer counts as activity of the
    /// handler.
    fn poll_elapsed(&mut self, task: &mut std::task::Context<'_>) -> bool {
        if self.timer.as_mut().poll(task).is_ready() || self.since.elapsed() > MAX_ACTIVE {
            return true;
        }
        self.timer.as_mut().reset(tokio::time::Instant::now() + MIN_IDLE);
        // This poll registers the waker for the new deadline.
        self.timer.as_mut().poll(task).is_ready()
    }
}
