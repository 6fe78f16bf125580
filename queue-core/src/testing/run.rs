//! Runs a handler inline, without a database or a worker.

use std::{fmt, future::IntoFuture, marker::PhantomData, ops::Deref, pin::Pin, sync::Arc};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::json;
use sqlx::PgPool;

use super::{
    attempt::{Attempt, AttemptRun, AttemptSetup, is_without_pool, no_pool},
    backend::{TestSignal, part_name},
    claimed::{check, claimed},
    points::Place,
};
use crate::{
    attempt::ClaimedJob,
    context::{CancelReason, ChildStatus, Handler, JobRunner, JournaledStep, Middleware, Registration, States, StepName, TIMEOUT_SUFFIX},
    define::{Failure, JobId, JobType},
    enqueue::EnqueueOptions,
    payload,
    schema::Store,
};

/// Returns a builder that runs a job's handler inline, without a database. By default, the run is the job's first attempt. Awaiting the
/// builder runs the handler.
pub fn run<T: Handler>(job: T) -> Run<T> {
    run_with::<T>(job)
}

/// Runs a job inline like [`run`], but with a [`#[handler]`](crate::handler) function.
///
/// ```
/// use queue_core::{Context, JobResult, handler, job, testing};
/// use serde::{Deserialize, Serialize};
///
/// #[job(send_only)]
/// #[derive(Serialize, Deserialize)]
/// struct SendEmail { to: String }
///
/// #[handler]
/// async fn send_email(job: SendEmail, _: &Context) -> JobResult {
///     println!("mail to {}", job.to);
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let ran = testing::run_with::<send_email>(SendEmail { to: "ada@example.org".into() }).await;
/// assert!(ran.is_completed());
/// # }
/// ```
pub fn run_with<H: JobRunner>(job: H::Job) -> Run<H::Job> {
    Run::new::<H>(job)
}

/// Builder that runs a handler inline. Created by [`run`] and [`run_with`].
///
/// ```
/// # use queue_core::{Context, Handler, JobResult, job, testing};
/// # #[job] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// # impl Handler for Email { async fn run(self, _: &Context) -> JobResult { Err("no connection".into()) } }
/// # async fn example() {
/// let email = Email { to: "ada@example.org".into() };
/// let ran = testing::run(email).attempt(2).max_attempts(2).meta("tenant", "acme").await;
/// assert!(ran.is_dead(), "the last attempt failed");
/// # }
/// ```
#[must_use = "nothing runs until this is awaited"]
pub struct Run<T> {
    pub(super) registration: Registration,
    job: T,
    pub(super) states: States,
    attempt: u32,
    max_attempts: Option<u32>,
    pub(super) pool: Option<PgPool>,
    pub(super) checkpoint: Option<String>,
    pub(super) steps: Vec<JournaledStep>,
    pub(super) signals: Vec<TestSignal>,
    pub(super) children: Vec<(String, ChildStatus)>,
    options: EnqueueOptions,
    system: Option<String>,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    pub(super) cancel_reason: Option<CancelReason>,
}

impl<T: JobType> Run<T> {
    fn new<H: JobRunner<Job = T>>(job: T) -> Self {
        let options = EnqueueOptions::for_type::<T>();
        Self {
            registration: Registration::of::<H>(),
            job,
            states: States::default(),
            attempt: 1,
            max_attempts: None,
            pool: None,
            checkpoint: None,
            steps: Vec::new(),
            signals: Vec::new(),
            children: Vec::new(),
            options,
            system: None,
            middleware: Vec::new(),
            cancel_reason: None,
        }
    }

    /// Adds the state returned by `cx.state::<S>()`, like `Worker::state`.
    pub fn state<S: Send + Sync + 'static>(mut self, value: S) -> Self {
        self.states.put(value);
        self
    }

    /// Adds middleware around the handler, like `Worker::middleware`.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Sets the number of the attempt. Defaults to 1.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// Overrides the job type's maximum number of attempts.
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// Sets the pool returned by `cx.pool()`. Defaults to a closed pool.
    pub fn pool(mut self, pool: &PgPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Sets the checkpoint of an earlier attempt, returned by `cx.last_checkpoint()`.
    ///
    /// # Panics
    /// Panics if the checkpoint cannot be stored.
    pub fn checkpoint<C: Serialize + ?Sized>(mut self, value: &C) -> Self {
        let text = payload::encode(value, payload::DEFAULT_LIMIT);
        self.checkpoint = Some(text.unwrap_or_else(|error| panic!("this checkpoint cannot be stored: {error}")));
        self
    }

    /// Adds a step of a durable job, with its output, as journaled by an earlier attempt.
    ///
    /// # Panics
    /// Panics if the output cannot be stored.
    pub fn journaled<V: Serialize + ?Sized>(mut self, name: impl Into<StepName>, value: &V) -> Self {
        let text = payload::encode(value, payload::DEFAULT_LIMIT).unwrap_or_else(|error| panic!("this output cannot be stored: {error}"));
        let (name, output) = (name.into().name, (text != "null").then_some(text));
        self.steps.push(JournaledStep { name, attempt: 1, output, left_ms: None });
        self
    }

    /// Adds a durable sleep that an earlier attempt started and that has ended.
    pub fn slept(mut self, name: impl Into<StepName>) -> Self {
        self.steps.push(JournaledStep { name: name.into().name, attempt: 1, output: None, left_ms: Some(0.0) });
        self
    }

    /// Adds a signal sent to the durable job before this attempt. Signals with the same name are received in the order in which they were
    /// added.
    ///
    /// # Panics
    /// Panics if the payload cannot be stored.
    pub fn signal<V: Serialize + ?Sized>(mut self, name: impl Into<String>, payload: &V) -> Self {
        let text =
            payload::encode(payload, payload::DEFAULT_LIMIT).unwrap_or_else(|error| panic!("this payload cannot be stored: {error}"));
        let (seq, payload) = (self.signals.len() as i64, (text != "null").then_some(text));
        self.signals.push(TestSignal { seq, name: name.into(), payload });
        self
    }

    /// Adds a wait for a signal. The wait was started by an earlier attempt, and has timed out.
    pub fn timed_out(mut self, name: impl Into<StepName>) -> Self {
        let name = format!("{}{TIMEOUT_SUFFIX}", name.into().name);
        self.steps.push(JournaledStep { name, attempt: 1, output: None, left_ms: Some(0.0) });
        self
    }

    /// Sets the output of the child spawned by the durable job's step `name`. Children do not run, so a child without a result counts as
    /// unfinished.
    ///
    /// # Panics
    /// Panics if the output cannot be stored.
    pub fn child_completed<V: Serialize + ?Sized>(self, name: impl Into<StepName>, output: &V) -> Self {
        let text = payload::encode(output, payload::DEFAULT_LIMIT).unwrap_or_else(|error| panic!("this output cannot be stored: {error}"));
        self.child(name.into(), "completed", (Some(text), None))
    }

    /// Records that the child spawned by the durable job's step `name` is a dead letter with the given error.
    pub fn child_dead(self, name: impl Into<StepName>, error: impl Into<String>) -> Self {
        self.child(name.into(), "dead", (None, Some(error.into())))
    }

    /// Records that the child spawned by the durable job's step `name` was cancelled.
    pub fn child_cancelled(self, name: impl Into<StepName>) -> Self {
        self.child(name.into(), "cancelled", (None, None))
    }

    /// Sets the results of the jobs mapped by the durable job's step `name`, in the order of the jobs. Each result is an output, or the
    /// error of a dead letter.
    ///
    /// The jobs do not run. The number of results must equal the number of jobs that the handler maps. If no results are set, no job of
    /// the map counts as finished.
    ///
    /// # Panics
    /// Panics if an output cannot be stored.
    pub fn map_ended<V: Serialize>(mut self, name: impl Into<StepName>, ends: impl IntoIterator<Item = Result<V, String>>) -> Self {
        let name = part_name(&name.into().name);
        for end in ends {
            self = match end {
                Ok(output) => self.child_completed(name.clone(), &output),
                Err(error) => self.child_dead(name.clone(), error),
            };
        }
        self
    }

    fn child(mut self, name: StepName, state: &str, (output, error): (Option<String>, Option<String>)) -> Self {
        let id = JobId(1_000_000 - 1 - self.children.len() as i64);
        self.children.push((name.name, ChildStatus { id, state: Some(state.to_owned()), attempts: 1, output, error }));
        self
    }

    /// Adds a value to `cx.meta()`, like [`Enqueue::meta`](crate::Enqueue::meta).
    pub fn meta(mut self, key: impl Into<String>, value: impl Serialize) -> Self {
        self.options.meta(key, value);
        self
    }

    /// Sets the tick returned by `cx.tick()`, with the name of the schedule and the time of the tick.
    pub fn tick(mut self, schedule: impl Into<String>, at: DateTime<Utc>) -> Self {
        let at = at.to_rfc3339_opts(SecondsFormat::Millis, true);
        self.system = Some(json!({ "schedule": schedule.into(), "tick": at }).to_string());
        self
    }

    /// Simulates a worker that is shutting down: the tokens of `cx.shutting_down()` and `cx.cancelled()` are cancelled, and a failed
    /// attempt does not count toward the maximum number of attempts.
    pub fn shutting_down(mut self) -> Self {
        self.cancel_reason = Some(CancelReason::Shutdown);
        self
    }

    /// Simulates a cancelled job: the token of `cx.cancelled()` is cancelled, and the handler's future is dropped 10 s later.
    pub fn cancelled(mut self) -> Self {
        self.cancel_reason = Some(CancelReason::Cancelled);
        self
    }

    /// Runs the handler. Awaiting the builder has the same effect.
    ///
    /// # Panics
    /// Panics if the payload or the metadata cannot be stored, or if state named by `#[job(state(..))]` is missing. These cases cannot
    /// occur in a worker, because they are detected when the job is enqueued or when the worker starts.
    pub async fn run(self) -> RunResult<T> {
        let (job, pool) = self.claimed().await;
        let Self { registration, states, checkpoint, steps, signals, children, cancel_reason, middleware, pool: own, .. } = self;
        let setup = AttemptSetup {
            registration: &registration,
            job: &job,
            checkpoint,
            steps,
            signals,
            children: Some(children),
            states,
            middleware,
            pool,
            store: Store::default(),
            lent: None,
            cancel_reason,
            points: None,
        };
        RunResult::of(setup.run().await, own.is_none())
    }

    /// Returns the job in the form that a claim returns, and the pool for its handler.
    pub(super) async fn claimed(&self) -> (ClaimedJob, PgPool) {
        let meta = self.options.meta_text().unwrap_or_else(|error| panic!("{error}"));
        if let Err(error) = check(&self.registration, &self.states) {
            panic!("{error}");
        }
        let pool = match &self.pool {
            Some(pool) => pool.clone(),
            None => no_pool().await,
        };
        (ClaimedJob { meta, system: self.system.clone(), ..claimed(&self.job, 1, self.attempt, self.max_attempts) }, pool)
    }
}

impl<T: JobType> IntoFuture for Run<T> {
    type Output = RunResult<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = RunResult<T>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<T> fmt::Debug for Run<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// Result of a handler that was run inline. Dereferences to the handler's [`Attempt`].
///
/// ```
/// # use queue_core::{Context, Handler, JobResult, job, testing};
/// # #[job(output = u32)] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// # impl Handler for Email { async fn run(self, _: &Context) -> JobResult<u32> { Ok(17) } }
/// # async fn example() {
/// let ran = testing::run(Email { to: "ada@example.org".into() }).await;
/// assert!(ran.failure().is_none());
/// assert_eq!(ran.output(), 17);
/// # }
/// ```
#[derive(Debug)]
pub struct RunResult<T> {
    attempt: Attempt,
    failure: Option<Failure>,
    interrupted_at: Option<Place>,
    job: PhantomData<fn() -> T>,
}

impl<T: JobType> RunResult<T> {
    /// Builds the result of an attempt. `bare` is true if the test has set no pool.
    pub(super) fn of(mut outturn: AttemptRun, bare: bool) -> Self {
        if bare && outturn.failure.as_ref().is_some_and(is_without_pool) {
            let error = outturn.attempt.error.get_or_insert_default();
            error.push_str("; no database available: set one with `.pool(&pool)`");
        }
        Self { attempt: outturn.attempt, failure: outturn.failure, interrupted_at: None, job: PhantomData }
    }

    pub(super) fn interrupted(mut self, at: Option<Place>) -> Self {
        self.interrupted_at = at;
        self
    }

    /// Returns the place where [`interrupt_everywhere`](super::interrupt_everywhere) interrupted the job, or `None` if the job was not
    /// interrupted.
    pub fn interrupted_at(&self) -> Option<Place> {
        self.interrupted_at
    }

    /// Returns the handler's output, decoded from its stored form.
    ///
    /// # Panics
    /// Panics if the job did not complete. The message contains the job's error.
    #[track_caller]
    pub fn output(&self) -> T::Output {
        let Attempt { job_type, number, outcome, error, .. } = &self.attempt;
        let why = error.as_deref().unwrap_or("without an error");
        self.attempt.output_of::<T>().unwrap_or_else(|| panic!("attempt {number} of `{job_type}` did not complete: {outcome:?}: {why}"))
    }

    /// Returns the failure that the handler returned, or `None` after a success, a panic or a timeout.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }
}

impl<T> Deref for RunResult<T> {
    type Target = Attempt;

    fn deref(&self) -> &Attempt {
        &self.attempt
    }
}
