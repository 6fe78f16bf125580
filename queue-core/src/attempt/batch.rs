//! The attempts of several jobs that one handler runs at once: each ends by itself.
//!
//! What the handler said of a job stands, however the handler ends. Middleware runs around the attempt of each job: up to the handler, for which all
//! of them wait for each other, and on from there with what was said of its own job. Never touches the database, as all of this room.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, StreamExt as _, future::join_all, stream::FuturesUnordered};
use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument as _, Span};

use super::{ClaimedJob, Ended, Halt, NO_PAYLOAD, context, ended::panic_text, finish};
use crate::{
    context::{AnyBatch, BatchContext, Context, Next, Place, Registration, Said, Shared},
    define::{Failure, Outcome, among},
    trace,
};

/// Runs the handler of these jobs, all of the type of `registration`, to its end, its timeout or its halt; returns how each attempt ended, in their
/// order. `failed` is given the failures that count.
///
/// # Panics
/// When the handler takes no batches. Nothing of the user's unwinds out of here.
pub async fn run_batch(
    registration: &Registration,
    jobs: &[&ClaimedJob],
    shared: &Arc<Shared>,
    halt: &Halt,
    mut failed: impl FnMut(Failure) + Send,
) -> Vec<Ended> {
    let seats: Vec<_> = jobs.iter().map(|job| Seat::new(job, registration, shared, halt)).collect();
    let attempts = seats.iter().map(|seat| Arc::clone(&seat.cx)).collect();
    let batch = registration.batch().expect("whoever calls this has asked whether its handler takes batches");
    let mut course = Course { batch, seats, end: None, failed: Vec::new() };
    let span = trace::batch(registration.options().name, jobs.iter().map(|job| job.beginning(shared.trace)));
    let told = trace::Told::of(&span);
    let cx = BatchContext::new(registration.options().name, &halt.ask, attempts, Arc::clone(shared));
    let limited = drive(&mut course, registration, &cx, (halt, span), !shared.middleware.is_empty());
    let stop = AssertUnwindSafe(limited).catch_unwind().await;
    let stop = stop.unwrap_or_else(|panic| Some(Stop::Panicked(panic_text(panic))));
    let mut ended = course.endings(stop.as_ref(), halt);
    course.failed.drain(..).for_each(&mut failed);
    let Course { batch, seats, .. } = course;
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(batch))) {
        tracing::error!(
            job_type = cx.job_type(),
            panic = panic_text(panic),
            "a job of a batch panicked when it was dropped; its verdict stands"
        );
    }
    let ended = join_all(seats.iter().zip(ended.drain(..)).map(|(seat, ended)| finish(ended, seat.job, &seat.cx, halt))).await;
    seats.iter().zip(&ended).for_each(|(seat, ended)| ended.trace(trace::Told::of(&seat.span), registration.options()));
    let failed = ended.iter().filter(|ended| ended.has_error()).count();
    let error = (failed > 0).then(|| format!("{failed} of {} jobs failed", ended.len()));
    told.end(if failed > 0 { "failed" } else { "ok" }, error.as_deref());
    ended
}

/// One job's part.
struct Seat<'j> {
    job: &'j ClaimedJob,
    cx: Arc<Context>,
    /// How its attempt ended, unless by whatever becomes of the batch.
    ended: Option<Ended>,
    /// The same, as long as middleware has not made something else of it.
    stated: Option<Ended>,
    /// The handler said something of it.
    is_judged: bool,
    /// Its attempt's, within middleware.
    span: Span,
}

impl<'j> Seat<'j> {
    fn new(job: &'j ClaimedJob, registration: &Registration, shared: &Arc<Shared>, halt: &Halt) -> Self {
        let cx = context(registration, job, shared, halt);
        let ended = job.payload.is_none().then(|| Ended::terminal(NO_PAYLOAD));
        Self { job, cx: Arc::new(cx), ended, stated: None, is_judged: false, span: Span::none() }
    }
}

/// How the handler ended by itself.
enum End {
    Returned(Result<(), Failure>),
    Panicked(String),
}

/// What ended the batch otherwise.
enum Stop {
    Panicked(String),
    TimedOut(Duration),
    Interrupted,
    Cancelled,
}

/// The batch, and how far it is. It outlives what runs in it, and so does what was said of its jobs.
struct Course<'j> {
    batch: Box<dyn AnyBatch>,
    seats: Vec<Seat<'j>>,
    end: Option<End>,
    /// The failures that counted.
    failed: Vec<Failure>,
}

/// Until all of it has ended, its time is over, or it is to be dropped: then it says why.
async fn drive(
    course: &mut Course<'_>,
    registration: &Registration,
    cx: &BatchContext,
    (halt, span): (&Halt, Span),
    has_middleware: bool,
) -> Option<Stop> {
    let members: Vec<(&ClaimedJob, Arc<Context>)> = course.seats.iter().map(|seat| (seat.job, Arc::clone(&seat.cx))).collect();
    let running = async { if has_middleware { course.run_within(cx).await } else { course.run(cx).await } }.instrument(span);
    let limited = async {
        let Some(limit) = registration.options().timeout else {
            running.await;
            return None;
        };
        tokio::time::timeout(limit, running).await.err().map(|_| Stop::TimedOut(limit))
    };
    let (mut limited, mut nobody_waits) = (pin!(limited), None);
    loop {
        let (cancelled, changed) = halt.look(members.iter().map(|(job, _)| *job));
        members.iter().zip(&cancelled).filter(|(_, cancelled)| **cancelled).for_each(|((_, cx), _)| cx.cancelled().cancel_job());
        if cancelled.iter().all(|cancelled| *cancelled) {
            cx.cancelled().cancel_job();
            nobody_waits.get_or_insert_with(|| Instant::now() + halt.grace);
        }
        tokio::select! {
            biased;
            stop = &mut limited => return stop,
            () = changed.cancelled() => if halt.drop.is_cancelled() { return Some(Stop::Interrupted) },
            () = tokio::time::sleep_until(nobody_waits.unwrap_or_else(Instant::now).into()), if nobody_waits.is_some() => {
                return Some(Stop::Cancelled);
            }
        }
    }
}

impl Course<'_> {
    async fn run(&mut self, cx: &BatchContext) {
        for at in 0..self.seats.len() {
            if let Err(result) = self.add(at) {
                self.conclude(at, result, self.seats[at].cx.is_asked());
            }
        }
        if self.may_begin() {
            self.end = Some(handle(&mut *self.batch, cx).await);
        }
    }

    /// Within middleware, of which each attempt has a course of its own.
    async fn run_within(&mut self, cx: &BatchContext) {
        let (mut chains, mut arrived, mut says) = self.enter();
        // Those whose middleware has not come to its end.
        let mut open: Vec<bool> = says.iter().map(Option::is_some).collect();
        let mut waiting = open.clone();
        while waiting.contains(&true) {
            tokio::select! {
                biased;
                Some(at) = arrived.recv() => waiting[at] = false,
                Some((at, result)) = chains.next() => {
                    (waiting[at], open[at]) = (false, false);
                    self.conclude(at, result, self.seats[at].cx.is_asked());
                }
            }
        }
        for at in 0..open.len() {
            match if open[at] { self.add(at) } else { Ok(()) } {
                Ok(()) => {}
                // Its middleware is told of a payload that does not fit, as of any failure; of a panic it is never told.
                Err(Ok(unread)) => says[at].take().map_or((), |say| say.send(unread).unwrap_or_default()),
                Err(panic) => {
                    open[at] = false;
                    self.conclude(at, panic, false);
                }
            }
        }
        if self.may_begin() {
            let Self { batch, seats, end, failed } = self;
            let mut handling = pin!(handle(&mut **batch, cx));
            *end = Some(loop {
                tokio::select! {
                    biased;
                    end = &mut handling => break end,
                    Some((at, result)) = chains.next() => {
                        open[at] = false;
                        let asked = seats[at].cx.is_asked();
                        conclude(&mut seats[at], failed, result, asked);
                    }
                }
            });
        }
        let mut asked = self.leave(&mut says, &open);
        // What nothing is said of, waits for nothing.
        let mut left = (0..open.len()).filter(|at| open[*at] && says[*at].is_none()).count();
        while left > 0
            && let Some((at, result)) = chains.next().await
        {
            left -= 1;
            self.conclude(at, result, asked[at].take().unwrap_or_else(|| self.seats[at].cx.is_asked()));
        }
    }

    /// Whether there is something to run, and no rate says that it is too late: then all of it goes back, as what was broken off.
    fn may_begin(&self) -> bool {
        self.batch.count() > 0 && !self.seats.iter().any(|seat| seat.cx.comes_too_late())
    }

    /// Begins the middleware of each attempt.
    fn enter(&mut self) -> (Chains, mpsc::UnboundedReceiver<usize>, Vec<Option<Say>>) {
        let (arrive, arrived) = mpsc::unbounded_channel();
        let (chains, mut says) = (FuturesUnordered::new(), Vec::new());
        for (at, seat) in self.seats.iter_mut().enumerate() {
            if seat.ended.is_some() {
                says.push(None);
                continue;
            }
            let (say, said) = oneshot::channel();
            says.push(Some(say));
            let (place, cx) = (Place { arrive: arrive.clone(), at, said }, Arc::clone(&seat.cx));
            seat.span = trace::attempt(&seat.job.beginning(cx.shared().trace));
            let chain = async move { Next::around(place, &cx).await }.instrument(seat.span.clone());
            chains.push(async move { (at, AssertUnwindSafe(chain).catch_unwind().await) }.boxed());
        }
        (chains, arrived, says)
    }

    /// Tells the middleware of each attempt what came of it; returns for each whether the handler had been asked to end when it said so.
    fn leave(&mut self, says: &mut [Option<Say>], open: &[bool]) -> Vec<Option<bool>> {
        let mut asked = vec![None; open.len()];
        for (at, said) in self.batch.said() {
            let seat = &mut self.seats[at];
            seat.is_judged = said.is_some();
            let said = said.or_else(|| {
                let result = match self.end.as_ref()? {
                    End::Returned(Ok(())) => self.batch.complete_rest(),
                    End::Returned(Err(failure)) => Err(failure.of_one_among(self.batch.count())),
                    End::Panicked(_) => return None,
                };
                Some(Said { result, asked: seat.cx.is_asked() })
            });
            let Some(Said { result, asked: was_asked }) = said.filter(|_| open[at]) else { continue };
            if seat.is_judged {
                seat.stated = Some(Ended::returned(result.as_ref().map(Clone::clone), was_asked));
            }
            asked[at] = Some(was_asked);
            // Fails only for middleware that does not wait any more.
            let _ = says[at].take().map(|say| say.send(result));
        }
        asked
    }

    /// Reads a job's payload, and puts it into the batch, unless it is over.
    fn add(&mut self, at: usize) -> Result<(), Result<Output, Panic>> {
        let Seat { job, cx, ended, .. } = &self.seats[at];
        let Some(payload) = job.payload.as_deref().filter(|_| ended.is_none()) else { return Ok(()) };
        let batch = &mut self.batch;
        match catch_unwind(AssertUnwindSafe(|| batch.add(payload, cx, at))) {
            Ok(read) => read.map_err(|failure| Ok(Err(failure))),
            Err(panic) => Err(Err(panic)),
        }
    }

    fn conclude(&mut self, at: usize, result: Result<Output, Panic>, asked: bool) {
        conclude(&mut self.seats[at], &mut self.failed, result, asked);
    }

    /// How each attempt ended: as was said of it, or else as the batch did.
    fn endings(&mut self, stop: Option<&Stop>, halt: &Halt) -> Vec<Ended> {
        let many = self.batch.count();
        for (at, said) in self.batch.said() {
            if let Some(Said { result, asked }) = said {
                self.seats[at].is_judged = true;
                if self.seats[at].ended.is_none() {
                    self.conclude(at, Ok(result), asked);
                }
            }
        }
        let rest = catch_unwind(AssertUnwindSafe(|| self.batch.complete_rest())).unwrap_or(Ok(None));
        let dropped = halt.drop.is_cancelled();
        let with_batch = |asked| match (stop, &self.end) {
            (Some(Stop::Panicked(_)), _) | (None, Some(End::Panicked(_))) if dropped => Ended::interrupted(),
            (Some(Stop::Panicked(text)), _) | (None, Some(End::Panicked(text))) => Ended::panicked_with(&among(text, many)),
            (Some(Stop::TimedOut(limit)), _) => Ended::new(Outcome::TimedOut, among(&format!("timed out after {limit:?}"), many)),
            (Some(Stop::Cancelled), _) => Ended::cancelled(),
            (None, Some(End::Returned(Ok(())))) => Ended::returned(rest.as_ref().map(Clone::clone), asked),
            (None, Some(End::Returned(Err(failure)))) => Ended::returned(Err(&failure.of_one_among(many)), asked),
            (Some(Stop::Interrupted), _) | (None, None) => Ended::interrupted(),
        };
        let ended = self.seats.iter_mut().map(|seat| {
            let ended = seat.ended.take().or_else(|| seat.stated.take()).unwrap_or_else(|| with_batch(seat.cx.is_asked()));
            // What nobody wants any more is completed only by what was said of it by itself.
            if !seat.is_judged && halt.is_cancelled(seat.job) { Ended::cancelled() } else { ended }
        });
        let ended = ended.collect();
        if let Some(End::Returned(Err(failure))) = self.end.take() {
            self.failed.push(failure);
        }
        ended
    }
}

type Panic = Box<dyn std::any::Any + Send>;

/// What an attempt comes to.
type Output = Result<Option<String>, Failure>;

/// The middleware of all attempts.
type Chains = FuturesUnordered<futures_util::future::BoxFuture<'static, (usize, Result<Output, Panic>)>>;

/// Where the middleware of one attempt waits for what is said of its job.
type Say = oneshot::Sender<Output>;

fn conclude(seat: &mut Seat<'_>, failed: &mut Vec<Failure>, result: Result<Output, Panic>, asked: bool) {
    seat.ended = Some(match result {
        Ok(Ok(output)) => Ended::returned(Ok(output), asked),
        Ok(Err(failure)) => {
            let ended = Ended::returned(Err(&failure), asked);
            failed.push(failure);
            ended
        }
        Err(panic) => Ended::panicked(panic),
    });
}

/// The handler.
async fn handle(batch: &mut dyn AnyBatch, cx: &BatchContext) -> End {
    match AssertUnwindSafe(async { batch.run(cx).await }).catch_unwind().await {
        Ok(result) => End::Returned(result),
        Err(panic) => End::Panicked(panic_text(panic)),
    }
}
