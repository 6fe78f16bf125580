//! One attempt: the handler, its timeout, its panics, its halt, and what comes of them.
//!
//! Workers and the test kit run this. It never touches the database: jobs come in, endings go out. Only
//! [`verdict`](crate::verdict) decides what an outcome leads to.

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

pub use self::{batch::run_batch, claimed::ClaimedJob, ended::Ended, halt::Halt, log::OpenLog};
use crate::{
    context::{Context, Durable, LogEntry, Registration, Shared, Stop, run_within},
    define::{Failure, Options, Outcome, Retain},
    trace,
};

/// Of a job whose row is gone.
const NO_PAYLOAD: &str = "the job's payload is missing from the store";

/// How long an attempt whose handler has ended waits for a commit that is on its way. Its verdict is fenced then as ever.
const LAST_COMMIT: Duration = Duration::from_secs(15);

/// How long an attempt whose handler has ended waits until what it reported last is written.
const LAST_REPORT: Duration = Duration::from_secs(1);

/// Runs the handler to its end, its timeout or its halt; of a transactional type in a transaction that is committed when it succeeds.
///
/// Nothing of the user's unwinds out of here and takes its caller with it: an error that panics when it is displayed, or a variable that panics
/// when a timeout drops it, is a panic of the attempt too. `failed` is given the failure that the handler returned.
pub async fn run(
    registration: &Registration,
    job: &ClaimedJob,
    shared: &Arc<Shared>,
    halt: &Halt,
    failed: impl FnMut(Failure) + Send,
) -> Ended {
    if registration.takes_batches() {
        // In a box, so that single jobs do not carry what it takes.
        let ended = Box::pin(run_batch(registration, &[job], shared, halt, failed)).await;
        return ended.into_iter().next().unwrap_or_else(Ended::interrupted);
    }
    let Some(payload) = &job.payload else { return Ended::terminal(NO_PAYLOAD) };
    let log = registration.options().keep_logs.map(OpenLog::open);
    let span = || trace::attempt(&job.beginning(shared.trace));
    let span = log.as_ref().map_or_else(span, |log| log.offer(span));
    let told = trace::Told::of(&span);
    let cx = Durable::around(context(registration, job, shared, halt));
    let handling = AssertUnwindSafe(handle((registration, payload), job, &cx, halt, span, failed)).catch_unwind();
    let ended = handling.await.unwrap_or_else(Ended::panicked);
    let ended = if halt.drop.is_cancelled() && ended.outcome() == Outcome::Panicked { Ended::interrupted() } else { ended };
    cx.flush(if halt.drop.is_cancelled() { Duration::ZERO } else { LAST_COMMIT }).await;
    let mut ended = finish(ended.put_off(cx.unsure()), job, &cx, halt).await.going_on(cx.last_journaled());
    ended.trace(told, registration.options());
    if let Some(log) = log {
        ended = ended.over_now();
        let keeping = keep_log(&log, &ended, job, registration.options(), shared, halt);
        // It is handed over at the first look; a worker that ends waits for no log.
        tokio::select! {
            biased;
            () = keeping => {}
            () = halt.drop.cancelled() => {}
        }
    }
    ended
}

/// Hands over what the attempt has logged before anybody is told how it ended; not if others have its job.
async fn keep_log(log: &OpenLog, ended: &Ended, job: &ClaimedJob, options: &Options, shared: &Shared, halt: &Halt) {
    if !log.is_taken() {
        return log::tell_of_no_collector(options.name);
    }
    // Of a type whose completed jobs leave nothing, what earlier attempts have logged goes with the job, by housekeeping.
    let leaves_nothing = ended.outcome() == Outcome::Ok && options.retain == Retain::None;
    let Some(kept) = log.close().filter(|_| !leaves_nothing && (ended.is_written() || !ended.is_over())) else { return };
    let token = (!ended.is_written()).then_some(job.token);
    let entry = LogEntry { token, id: job.id, attempt: job.attempt, cut: kept.cut, text: kept.text };
    shared.backend.keep_log(entry, !halt.drop.is_cancelled()).await;
}

/// What the job's handler is to be given.
fn context(registration: &Registration, job: &ClaimedJob, shared: &Arc<Shared>, halt: &Halt) -> Context {
    let attempts = (job.number(), job.most_attempts());
    let mut cx = Context::new(job.fence(registration), job.job_type, attempts, Arc::clone(&halt.ask), Arc::clone(shared));
    cx.set_claimed(job.version, job.meta.clone(), job.system.clone(), job.claimed_at);
    cx.set_room(job.room_until);
    cx
}

/// Once the handler is done with the job: waits for what it reported and for a commit of its own, and sees whether the job was cancelled.
async fn finish(ended: Ended, job: &ClaimedJob, cx: &Context, halt: &Halt) -> Ended {
    if let Some(report) = cx.report() {
        let patience = if halt.drop.is_cancelled() { Duration::ZERO } else { LAST_REPORT };
        report.end(patience).await;
    }
    // Whatever a handler makes of being cancelled: only what it completed counts.
    let ended = if ended.outcome() != Outcome::Ok && halt.is_cancelled(job) { Ended::cancelled() } else { ended };
    match cx.begun() {
        Some(begun) => ended.after(begun.close(LAST_COMMIT).await, begun.said(), job.id),
        None => ended,
    }
}

/// Until the handler ends, its time is over, or it is to be dropped.
async fn handle(
    (registration, payload): (&Registration, &str),
    job: &ClaimedJob,
    cx: &Durable,
    halt: &Halt,
    span: Span,
    mut failed: impl FnMut(Failure),
) -> Ended {
    if registration.options().durable
        && let Err(error) = cx.load().await
    {
        return Ended::failed(format!("the job's journal cannot be read: {error}"));
    }
    if registration.options().transactional {
        tokio::select! {
            begun = Box::pin(cx.begin_transaction()) => if let Err(error) = begun {
                return Ended::failed(format!("the job's transaction cannot begin: {error}"));
            },
            () = halt.drop.cancelled() => return Ended::interrupted(),
        }
    }
    let running = async {
        let output = run_within(registration, payload, cx).await?;
        if registration.options().transactional {
            // In a box, so that other attempts do not carry what it takes.
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
                ended = left(cx) => return ended,
                () = changed.cancelled() => if halt.drop.is_cancelled() { return Ended::interrupted() },
            }
        } else {
            cx.cancelled().cancel_job();
            tokio::select! {
                biased;
                result = &mut limited => break result,
                ended = left(cx) => return ended,
                () = halt.drop.cancelled() => return Ended::interrupted(),
                () = tokio::time::sleep(halt.grace) => return Ended::cancelled(),
            }
        }
    };
    match result {
        // Whatever its middleware made of it.
        _ if cx.came_too_late() => Ended::interrupted(),
        Ok(Ok(output)) => Ended::returned(Ok(output), false),
        Ok(Err(failure)) => {
            let ended = Ended::returned(Err(&failure), cx.is_asked());
            failed(failure);
            ended
        }
        Err(limit) => Ended::new(Outcome::TimedOut, format!("timed out after {limit:?}")),
    }
}

/// Ends once the handler was to begin and could not any more, or is to be left half-way; asked whenever the attempt has been polled.
async fn left(cx: &Durable) -> Ended {
    let mut quiet: Option<Quiet> = None;
    let asked = |task: &mut std::task::Context<'_>| {
        if cx.came_too_late() {
            return Poll::Ready(Ended::interrupted());
        }
        match cx.stop() {
            None => quiet = None,
            Some(Stop::Parked(wait, signals)) => {
                if quiet.get_or_insert_with(Quiet::begin).is_over(task) {
                    return Poll::Ready(Ended::parked(wait, signals));
                }
            }
            Some(Stop::Restarted(anew)) => return Poll::Ready(Ended::restarted(anew)),
            Some(Stop::Broken(failure)) => return Poll::Ready(Ended::returned(Err(&failure), false)),
            Some(Stop::Suspended(wait)) => {
                if quiet.get_or_insert_with(Quiet::begin).is_over(task) {
                    return Poll::Ready(Ended::suspended(wait));
                }
            }
        }
        Poll::Pending
    };
    poll_fn(asked).await
}

/// A handler that waits is left once it has not moved for so long: what it does beside the wait may be on its way to a step.
const STILL: Duration = Duration::from_millis(100);

/// It is left after this time, however much it moves.
const MOVES: Duration = Duration::from_secs(5);

/// How long a handler that waits has not moved.
struct Quiet {
    since: Instant,
    over: Pin<Box<Sleep>>,
}

impl Quiet {
    fn begin() -> Self {
        Self { since: Instant::now(), over: Box::pin(sleep(STILL)) }
    }

    /// Asked when the handler was polled: unless it was this that woke it, it has moved.
    fn is_over(&mut self, task: &mut std::task::Context<'_>) -> bool {
        if self.over.as_mut().poll(task).is_ready() || self.since.elapsed() > MOVES {
            return true;
        }
        self.over.as_mut().reset(tokio::time::Instant::now() + STILL);
        // Wakes the attempt then.
        self.over.as_mut().poll(task).is_ready()
    }
}
