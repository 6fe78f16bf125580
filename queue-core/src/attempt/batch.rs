//! Attempts of several jobs that one handler call runs as a batch. Each attempt ends separately.
//!
//! A result that the handler set for a job is kept even if the handler later fails. Middleware runs once per attempt, waits for the
//! handler, and continues with the result of the attempt's job. Like the rest of the `attempt` module, this code never accesses the
//! database.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, StreamExt as _, future::join_all, stream::FuturesUnordered};
use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument as _, Span};

use super::{AttemptEnd, ClaimedJob, Halt, NO_PAYLOAD, context, ended::panic_text, finish};
use crate::{
    context::{AnyBatch, BatchBarrier, BatchContext, BatchJobResult, Context, Next, Registration, Shared},
    define::{Failure, Outcome, batch_error},
    trace,
};

/// Runs the batch handler of `registration` for `jobs` until the handler returns, times out or is halted. Returns the outcome of each
/// attempt, in the order of `jobs`. `on_failure` receives the failures that the handler or middleware returned.
///
/// # Panics
/// Panics if `registration` has no batch handler. Panics in user code do not propagate.
pub async fn run_batch(
    registration: &Registration,
    jobs: &[&ClaimedJob],
    shared: &Arc<Shared>,
    halt: &Halt,
    mut on_failure: impl FnMut(Failure) + Send,
) -> Vec<AttemptEnd> {
    let members: Vec<_> = jobs.iter().map(|job| BatchMember::new(job, registration, shared, halt)).collect();
    let attempts = members.iter().map(|member| Arc::clone(&member.cx)).collect();
    let batch = registration.batch().expect("callers check `takes_batches`");
    let mut run = BatchRun { batch, members, exit: None, failures: Vec::new() };
    let span = trace::batch_span(registration.options().name, jobs.iter().map(|job| job.span_info(shared.trace)));
    let recorder = trace::OutcomeRecorder::new(&span);
    let cx = BatchContext::new(registration.options().name, &halt.stop_request, attempts, Arc::clone(shared));
    let limited = drive(&mut run, registration, &cx, (halt, span), !shared.middleware.is_empty());
    let abort = AssertUnwindSafe(limited).catch_unwind().await;
    let abort = abort.unwrap_or_else(|panic| Some(BatchAbort::Panicked(panic_text(panic))));
    let mut ended = run.endings(abort.as_ref(), halt);
    run.failures.drain(..).for_each(&mut on_failure);
    let BatchRun { batch, members, .. } = run;
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(batch))) {
        tracing::error!(
            job_type = cx.job_type(),
            panic = panic_text(panic),
            "a job of a batch panicked while being dropped; its verdict is unaffected"
        );
    }
    let ended = join_all(members.iter().zip(ended.drain(..)).map(|(member, ended)| finish(ended, member.job, &member.cx, halt))).await;
    members.iter().zip(&ended).for_each(|(member, ended)| ended.record(trace::OutcomeRecorder::new(&member.span), registration.options()));
    let failed = ended.iter().filter(|ended| ended.has_error()).count();
    let error = (failed > 0).then(|| format!("{failed} of {} jobs failed", ended.len()));
    recorder.record(if failed > 0 { "failed" } else { "ok" }, error.as_deref());
    ended
}

/// Attempt of one job of the batch.
struct BatchMember<'j> {
    job: &'j ClaimedJob,
    cx: Arc<Context>,
    /// Outcome of the attempt, if it is known independently of the batch's outcome.
    ended: Option<AttemptEnd>,
    /// Outcome of the attempt according to the result that the handler set for the job. The result of middleware takes precedence.
    judged_end: Option<AttemptEnd>,
    /// Whether the handler set a result for this job.
    is_judged: bool,
    /// Span of the attempt. Set only if middleware is registered.
    span: Span,
}

impl<'j> BatchMember<'j> {
    fn new(job: &'j ClaimedJob, registration: &Registration, shared: &Arc<Shared>, halt: &Halt) -> Self {
        let cx = context(registration, job, shared, halt);
        let ended = job.payload.is_none().then(|| AttemptEnd::terminal(NO_PAYLOAD));
        Self { job, cx: Arc::new(cx), ended, judged_end: None, is_judged: false, span: Span::none() }
    }
}

/// Result of the handler call: its return value, or the message of its panic.
enum HandlerExit {
    Returned(Result<(), Failure>),
    Panicked(String),
}

/// Cause of a batch abort.
enum BatchAbort {
    Panicked(String),
    TimedOut(Duration),
    Interrupted,
    Cancelled,
}

/// State of a running batch. The state outlives the futures that run the batch, so the results of the jobs survive an abort.
struct BatchRun<'j> {
    batch: Box<dyn AnyBatch>,
    members: Vec<BatchMember<'j>>,
    exit: Option<HandlerExit>,
    /// Failures to pass to `on_failure`.
    failures: Vec<Failure>,
}

/// Runs the batch until it ends or is aborted. Returns the cause of the abort, if any.
async fn drive(
    run: &mut BatchRun<'_>,
    registration: &Registration,
    cx: &BatchContext,
    (halt, span): (&Halt, Span),
    has_middleware: bool,
) -> Option<BatchAbort> {
    let attempts: Vec<(&ClaimedJob, Arc<Context>)> = run.members.iter().map(|member| (member.job, Arc::clone(&member.cx))).collect();
    let running = async { if has_middleware { run.run_with_middleware(cx).await } else { run.run(cx).await } }.instrument(span);
    let limited = async {
        let Some(limit) = registration.options().timeout else {
            running.await;
            return None;
        };
        tokio::time::timeout(limit, running).await.err().map(|_| BatchAbort::TimedOut(limit))
    };
    let (mut limited, mut all_cancelled_deadline) = (pin!(limited), None);
    loop {
        let (cancelled, changed) = halt.cancelled_jobs(attempts.iter().map(|(job, _)| *job));
        attempts.iter().zip(&cancelled).filter(|(_, cancelled)| **cancelled).for_each(|((_, cx), _)| cx.cancelled().cancel_job());
        if cancelled.iter().all(|cancelled| *cancelled) {
            cx.cancelled().cancel_job();
            all_cancelled_deadline.get_or_insert_with(|| Instant::now() + halt.grace);
        }
        tokio::select! {
            biased;
            abort = &mut limited => return abort,
            () = changed.cancelled() => if halt.drop.is_cancelled() { return Some(BatchAbort::Interrupted) },
            () = tokio::time::sleep_until(all_cancelled_deadline.unwrap_or_else(Instant::now).into()), if all_cancelled_deadline.is_some() => {
                return Some(BatchAbort::Cancelled);
            }
        }
    }
}

impl BatchRun<'_> {
    async fn run(&mut self, cx: &BatchContext) {
        for index in 0..self.members.len() {
            if let Err(result) = self.add(index) {
                self.conclude(index, result, self.members[index].cx.is_stop_requested());
            }
        }
        if self.can_start() {
            self.exit = Some(run_handler(&mut *self.batch, cx).await);
        }
    }

    /// Runs the batch inside middleware. Each attempt has its own middleware chain.
    async fn run_with_middleware(&mut self, cx: &BatchContext) {
        let (mut chains, mut arrivals, mut senders) = self.start_middleware();
        // Whether the middleware of each attempt is still running.
        let mut open: Vec<bool> = senders.iter().map(Option::is_some).collect();
        let mut waiting = open.clone();
        while waiting.contains(&true) {
            tokio::select! {
                biased;
                Some(index) = arrivals.recv() => waiting[index] = false,
                Some((index, result)) = chains.next() => {
                    (waiting[index], open[index]) = (false, false);
                    self.conclude(index, result, self.members[index].cx.is_stop_requested());
                }
            }
        }
        for index in 0..open.len() {
            match if open[index] { self.add(index) } else { Ok(()) } {
                Ok(()) => {}
                // Middleware sees a decoding failure as a failure of the handler. Middleware never sees a panic.
                Err(Ok(undecoded)) => senders[index].take().map_or((), |sender| sender.send(undecoded).unwrap_or_default()),
                Err(panic) => {
                    open[index] = false;
                    self.conclude(index, panic, false);
                }
            }
        }
        if self.can_start() {
            let Self { batch, members, exit, failures } = self;
            let mut handler = pin!(run_handler(&mut **batch, cx));
            *exit = Some(loop {
                tokio::select! {
                    biased;
                    exit = &mut handler => break exit,
                    Some((index, result)) = chains.next() => {
                        open[index] = false;
                        let stop_requested = members[index].cx.is_stop_requested();
                        conclude(&mut members[index], failures, result, stop_requested);
                    }
                }
            });
        }
        let mut stop_requested = self.send_results(&mut senders, &open);
        // Middleware of jobs without a result keeps waiting at the barrier, so this loop does not wait for such middleware.
        let mut remaining = (0..open.len()).filter(|index| open[*index] && senders[*index].is_none()).count();
        while remaining > 0
            && let Some((index, result)) = chains.next().await
        {
            remaining -= 1;
            self.conclude(index, result, stop_requested[index].take().unwrap_or_else(|| self.members[index].cx.is_stop_requested()));
        }
    }

    /// Returns whether the batch has a job to run and no start deadline has passed. If the batch cannot start, its unfinished attempts end
    /// as interrupted, and their jobs are released.
    fn can_start(&self) -> bool {
        self.batch.count() > 0 && !self.members.iter().any(|member| member.cx.check_start_deadline())
    }

    /// Starts the middleware of each attempt. Returns the in-flight middleware chains, a receiver for the indices of attempts that arrive
    /// at the barrier, and the senders for the jobs' results.
    fn start_middleware(&mut self) -> (MiddlewareChains, mpsc::UnboundedReceiver<usize>, Vec<Option<ResultSender>>) {
        let (arrivals_sender, arrivals) = mpsc::unbounded_channel();
        let (chains, mut senders) = (FuturesUnordered::new(), Vec::new());
        for (index, member) in self.members.iter_mut().enumerate() {
            if member.ended.is_some() {
                senders.push(None);
                continue;
            }
            let (sender, result) = oneshot::channel();
            senders.push(Some(sender));
            let (barrier, cx) = (BatchBarrier { arrivals: arrivals_sender.clone(), index, result }, Arc::clone(&member.cx));
            member.span = trace::attempt_span(&member.job.span_info(cx.shared().trace));
            let chain = async move { Next::run_in_batch(barrier, &cx).await }.instrument(member.span.clone());
            chains.push(async move { (index, AssertUnwindSafe(chain).catch_unwind().await) }.boxed());
        }
        (chains, arrivals, senders)
    }

    /// Sends the result of each job to the middleware of the job's attempt. For each job with a result, returns whether a stop had been
    /// requested when the handler set the result. If the result follows from the handler's return value, returns whether a stop had been
    /// requested when the handler returned.
    fn send_results(&mut self, senders: &mut [Option<ResultSender>], open: &[bool]) -> Vec<Option<bool>> {
        let mut stop_requested = vec![None; open.len()];
        for (index, result) in self.batch.take_results() {
            let member = &mut self.members[index];
            member.is_judged = result.is_some();
            let result = result.or_else(|| {
                let result = match self.exit.as_ref()? {
                    HandlerExit::Returned(Ok(())) => self.batch.complete_rest(),
                    HandlerExit::Returned(Err(failure)) => Err(failure.for_batch_member(self.batch.count())),
                    HandlerExit::Panicked(_) => return None,
                };
                Some(BatchJobResult { result, stop_requested: member.cx.is_stop_requested() })
            });
            let Some(BatchJobResult { result, stop_requested: was_requested }) = result.filter(|_| open[index]) else { continue };
            if member.is_judged {
                member.judged_end = Some(AttemptEnd::returned(result.as_ref().map(Clone::clone), was_requested));
            }
            stop_requested[index] = Some(was_requested);
            // The send fails only if the middleware is no longer waiting.
            let _ = senders[index].take().map(|sender| sender.send(result));
        }
        stop_requested
    }

    /// Decodes a job's payload and adds the job to the batch, unless the job's attempt has already ended.
    fn add(&mut self, index: usize) -> Result<(), Result<AttemptResult, PanicPayload>> {
        let BatchMember { job, cx, ended, .. } = &self.members[index];
        let Some(payload) = job.payload.as_deref().filter(|_| ended.is_none()) else { return Ok(()) };
        let batch = &mut self.batch;
        match catch_unwind(AssertUnwindSafe(|| batch.add(payload, cx, index))) {
            Ok(added) => added.map_err(|failure| Ok(Err(failure))),
            Err(panic) => Err(Err(panic)),
        }
    }

    fn conclude(&mut self, index: usize, result: Result<AttemptResult, PanicPayload>, stop_requested: bool) {
        conclude(&mut self.members[index], &mut self.failures, result, stop_requested);
    }

    /// Returns the outcome of each attempt: its own outcome if already known, otherwise the result that the handler set for its job,
    /// otherwise the outcome of the batch.
    fn endings(&mut self, abort: Option<&BatchAbort>, halt: &Halt) -> Vec<AttemptEnd> {
        let count = self.batch.count();
        for (index, result) in self.batch.take_results() {
            if let Some(BatchJobResult { result, stop_requested }) = result {
                self.members[index].is_judged = true;
                if self.members[index].ended.is_none() {
                    self.conclude(index, Ok(result), stop_requested);
                }
            }
        }
        let rest = catch_unwind(AssertUnwindSafe(|| self.batch.complete_rest())).unwrap_or(Ok(None));
        let dropped = halt.drop.is_cancelled();
        let batch_end = |stop_requested| match (abort, &self.exit) {
            (Some(BatchAbort::Panicked(_)), _) | (None, Some(HandlerExit::Panicked(_))) if dropped => AttemptEnd::interrupted(),
            (Some(BatchAbort::Panicked(text)), _) | (None, Some(HandlerExit::Panicked(text))) => {
                AttemptEnd::panicked_with(&batch_error(text, count))
            }
            (Some(BatchAbort::TimedOut(limit)), _) => {
                AttemptEnd::new(Outcome::TimedOut, batch_error(&format!("timed out after {limit:?}"), count))
            }
            (Some(BatchAbort::Cancelled), _) => AttemptEnd::cancelled(),
            (None, Some(HandlerExit::Returned(Ok(())))) => AttemptEnd::returned(rest.as_ref().map(Clone::clone), stop_requested),
            (None, Some(HandlerExit::Returned(Err(failure)))) => {
                AttemptEnd::returned(Err(&failure.for_batch_member(count)), stop_requested)
            }
            (Some(BatchAbort::Interrupted), _) | (None, None) => AttemptEnd::interrupted(),
        };
        let ended = self.members.iter_mut().map(|member| {
            let ended =
                member.ended.take().or_else(|| member.judged_end.take()).unwrap_or_else(|| batch_end(member.cx.is_stop_requested()));
            // A cancelled job keeps its outcome only if the handler set a result for the job.
            if !member.is_judged && halt.is_cancelled(member.job) { AttemptEnd::cancelled() } else { ended }
        });
        let ended = ended.collect();
        if let Some(HandlerExit::Returned(Err(failure))) = self.exit.take() {
            self.failures.push(failure);
        }
        ended
    }
}

type PanicPayload = Box<dyn std::any::Any + Send>;

/// Output or failure of an attempt.
type AttemptResult = Result<Option<String>, Failure>;

/// In-flight middleware chains of all attempts. Each future yields the index and the result of its attempt.
type MiddlewareChains = FuturesUnordered<futures_util::future::BoxFuture<'static, (usize, Result<AttemptResult, PanicPayload>)>>;

/// Sender of a job's result to the middleware of the job's attempt.
type ResultSender = oneshot::Sender<AttemptResult>;

fn conclude(member: &mut BatchMember<'_>, failures: &mut Vec<Failure>, result: Result<AttemptResult, PanicPayload>, stop_requested: bool) {
    member.ended = Some(match result {
        Ok(Ok(output)) => AttemptEnd::returned(Ok(output), stop_requested),
        Ok(Err(failure)) => {
            let ended = AttemptEnd::returned(Err(&failure), stop_requested);
            failures.push(failure);
            ended
        }
        Err(panic) => AttemptEnd::panicked(panic),
    });
}

async fn run_handler(batch: &mut dyn AnyBatch, cx: &BatchContext) -> HandlerExit {
    match AssertUnwindSafe(async { batch.run(cx).await }).catch_unwind().await {
        Ok(result) => HandlerExit::Returned(result),
        Err(panic) => HandlerExit::Panicked(panic_text(panic)),
    }
}
