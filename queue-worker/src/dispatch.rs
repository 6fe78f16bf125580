//! Running one attempt: the handler, its timeout, its panics, its halt.
//!
//! Never touches the database: what comes out is an outcome, and only `retry::verdict` decides what that leads to.

use std::{
    any::Any,
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use queue_core::{
    Context, JobId, Outcome, Registration, Retain, Verdict, verdict,
    worker::{Fence, Lent, NOT_COMPLETED, Shared, Stage},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{claim::Claimed, settle::Settlement};

/// How handlers are told to end: asked first, then dropped. All of a queue at once, or a single one that was called off.
#[derive(Default)]
pub(crate) struct Halt {
    pub(crate) ask: CancellationToken,
    pub(crate) drop: CancellationToken,
    /// How long a handler whose job was called off may go on.
    grace: Duration,
    single: Mutex<Single>,
}

/// Jobs that were called off. All attempts of a queue wait for one token, which is exchanged when it has fired: one of its own for each would be
/// paid for by every job.
#[derive(Default)]
struct Single {
    jobs: HashSet<(Uuid, JobId)>,
    stir: Option<CancellationToken>,
}

impl Halt {
    pub(crate) fn new(grace: Duration) -> Self {
        Self { grace, ..Self::default() }
    }

    /// Asks this job's handler to end, and drops it when its grace is over.
    pub(crate) fn call_off(&self, token: Uuid, id: JobId) {
        let mut single = self.single();
        single.jobs.insert((token, id));
        if let Some(stir) = single.stir.take() {
            stir.cancel();
        }
    }

    /// Forgets a job that was called off.
    pub(crate) fn forget(&self, token: Uuid, id: JobId) {
        self.single().jobs.remove(&(token, id));
    }

    fn is_called_off(&self, job: &Claimed) -> bool {
        self.single().jobs.contains(&(job.token, job.id))
    }

    /// Fires when handlers are dropped or any job is called off; `None` if this one is.
    fn stir(&self, job: &Claimed) -> Option<CancellationToken> {
        let mut single = self.single();
        if !single.jobs.is_empty() && single.jobs.contains(&(job.token, job.id)) {
            return None;
        }
        Some(single.stir.get_or_insert_with(|| self.drop.child_token()).clone())
    }

    /// Nothing is half-written under this lock, so that one which a panic left poisoned is as good as any.
    fn single(&self) -> MutexGuard<'_, Single> {
        self.single.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The longest error text that is kept, in bytes.
const LONGEST_ERROR: usize = 8 * 1024;

/// The longest output that is kept, in bytes.
pub(crate) const LONGEST_OUTPUT: usize = 16 * 1024 * 1024;

/// How long an attempt whose handler has ended waits for a commit that is on its way. Its verdict is fenced then as ever.
const LAST_COMMIT: Duration = Duration::from_secs(15);

/// How long an attempt whose handler has ended waits until what it reported last is written.
const LAST_REPORT: Duration = Duration::from_secs(1);

/// How an attempt ended.
pub(crate) struct Ended {
    outcome: Outcome,
    output: Option<String>,
    error: Option<String>,
    /// Nothing is left to be written: the handler's own transaction has, or others have the job.
    over: bool,
}

impl Ended {
    fn new(outcome: Outcome, error: impl Into<String>) -> Self {
        Self { outcome, output: None, error: Some(error.into()), over: false }
    }

    pub(crate) fn terminal(error: impl Into<String>) -> Self {
        Self::new(Outcome::Terminal, error)
    }

    pub(crate) fn failed(error: impl Into<String>) -> Self {
        Self::new(Outcome::Failed, error)
    }

    fn interrupted() -> Self {
        Self { outcome: Outcome::Interrupted, output: None, error: None, over: false }
    }

    fn cancelled() -> Self {
        Self { outcome: Outcome::Cancelled, ..Self::interrupted() }
    }

    /// How an attempt ended whose handler began a transaction of its own, which came so far.
    fn after(self, stage: Stage, job: &Claimed) -> Self {
        match stage {
            Stage::Written => {
                if matches!(self.outcome, Outcome::Failed | Outcome::Panicked | Outcome::RetryIn(_) | Outcome::Snoozed(_)) {
                    let error = self.error.as_deref().unwrap_or_default();
                    tracing::warn!(job = %job.id, error, "the handler failed after its transaction had ended the job, which stays as it is");
                }
                Self { over: true, ..self }
            }
            Stage::Lost => {
                tracing::warn!(job = %job.id, "lease lost: a handler's transaction was rolled back, others have this job");
                Self { over: true, ..self }
            }
            // If a commit in doubt did happen, this verdict is refused: the job is no longer in the lease.
            _ if self.outcome == Outcome::Ok => Self::failed(NOT_COMPLETED),
            _ => self,
        }
    }

    fn panicked(panic: Box<dyn Any + Send>) -> Self {
        Self::new(Outcome::Panicked, format!("panicked: {}", panic_text(panic)))
    }
}

/// Runs the handler to its end, its timeout or its halt. Nothing of the user's unwinds out of here and takes the slot with it: an error that
/// panics when it is displayed, or a variable that panics when a timeout drops it, is a panic of the attempt too.
pub(crate) async fn attempt(registration: &Registration, job: &Claimed, shared: &Arc<Shared>, halt: &Halt) -> Ended {
    attempt_within(registration, job, shared, halt, None).await
}

/// As [`attempt`], with the transaction of a job that has one.
pub(crate) async fn attempt_within(
    registration: &Registration,
    job: &Claimed,
    shared: &Arc<Shared>,
    halt: &Halt,
    lent: Option<Lent>,
) -> Ended {
    let Some(payload) = &job.payload else { return Ended::terminal("the job's payload is missing from the store") };
    let cx = Context::new(
        job.id,
        job.attempt.unsigned_abs().into(),
        job.max_attempts.unsigned_abs().into(),
        halt.ask.clone(),
        Arc::clone(shared),
    );
    let cx = if lent.is_some() { cx.within(lent) } else { cx.under(fence(registration, job)) };
    let ended = AssertUnwindSafe(run(registration, payload, job, &cx, halt)).catch_unwind().await.unwrap_or_else(Ended::panicked);
    let ended = if halt.drop.is_cancelled() && ended.outcome == Outcome::Panicked { Ended::interrupted() } else { ended };
    if let Some(report) = cx.report() {
        let patience = if halt.drop.is_cancelled() { Duration::ZERO } else { LAST_REPORT };
        report.end(patience).await;
    }
    // Whatever a handler makes of being called off: only what it completed counts.
    let ended = if ended.outcome != Outcome::Ok && halt.is_called_off(job) { Ended::cancelled() } else { ended };
    match cx.begun() {
        Some(begun) => ended.after(begun.close(LAST_COMMIT).await, job),
        None => ended,
    }
}

/// What a transaction of the handler's own writes its verdict under.
fn fence(registration: &Registration, job: &Claimed) -> Fence {
    let Claimed { token, id, lane, attempt, crashes, key, .. } = *job;
    Fence { token, id, lane, attempt, crashes, keep: registration.options().retain != Retain::None, key, since: Instant::now() }
}

async fn run(registration: &Registration, payload: &str, job: &Claimed, cx: &Context, halt: &Halt) -> Ended {
    let running = registration.run(payload, cx);
    let limited = async {
        match registration.options().timeout {
            Some(limit) => tokio::time::timeout(limit, running).await.map_err(|_| limit),
            None => Ok(running.await),
        }
    };
    let mut limited = pin!(limited);
    let result = loop {
        if let Some(stir) = halt.stir(job) {
            tokio::select! {
                biased;
                result = &mut limited => break result,
                () = stir.cancelled() => if halt.drop.is_cancelled() { return Ended::interrupted() },
            }
        } else {
            cx.cancelled().cancel();
            tokio::select! {
                biased;
                result = &mut limited => break result,
                () = halt.drop.cancelled() => return Ended::interrupted(),
                () = tokio::time::sleep(halt.grace) => return Ended::cancelled(),
            }
        }
    };
    match result {
        Ok(Ok(output)) if output.as_ref().is_some_and(|text| text.len() > LONGEST_OUTPUT) => {
            Ended::terminal(format!("the output is longer than {LONGEST_OUTPUT} bytes; store a reference instead"))
        }
        Ok(Ok(output)) => Ended { outcome: Outcome::Ok, output, error: None, over: false },
        // A handler that ends early because it was asked to has not failed.
        Ok(Err(_)) if halt.ask.is_cancelled() => Ended::interrupted(),
        Ok(Err(failure)) => Ended::new(failure.kind().outcome(), failure.to_string()),
        Err(limit) => Ended::new(Outcome::TimedOut, format!("timed out after {limit:?}")),
    }
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let panic = match panic.downcast::<String>() {
        Ok(text) => return *text,
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    // Its drop may panic, with a value whose drop panics: that one is leaked.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
    text.unwrap_or_else(|| "with a value that is no text".to_owned())
}

/// From how an attempt ended to what is written.
pub(crate) fn judge(registration: Option<&Registration>, job: &Claimed, ended: Ended, ran: Duration) -> Settlement {
    let options = registration.map(Registration::options);
    let backoff = options.map(|options| options.backoff).unwrap_or_default();
    let (attempt, most) = (job.attempt.unsigned_abs().into(), job.max_attempts.unsigned_abs().into());
    let verdict = verdict(ended.outcome, attempt, most, &backoff, fastrand::f64());
    Settlement {
        verdict,
        over: ended.over,
        keep: options.is_none_or(|options| options.retain != Retain::None),
        ran,
        output: ended.output.map(without_nul),
        error: ended.error.map(storable),
        ..release(job)
    }
}

/// The verdict for a job that was not begun, or is to be broken off.
pub(crate) fn release(job: &Claimed) -> Settlement {
    Settlement {
        token: job.token,
        id: job.id,
        lane: job.lane,
        attempt: job.attempt,
        crashes: job.crashes,
        batch: job.batch,
        verdict: Verdict::Release,
        over: false,
        keep: true,
        key: job.key,
        ran: Duration::ZERO,
        output: None,
        error: None,
        held: Arc::clone(&job.held),
    }
}

/// The verdict for a job that was called off before it was begun.
pub(crate) fn not_begun(job: &Claimed) -> Settlement {
    Settlement { verdict: Verdict::Cancel, attempt: job.attempt - 1, ..release(job) }
}

/// An error text that the database takes: without NUL, at most 8 KiB.
pub(crate) fn storable(mut text: String) -> String {
    if text.len() > LONGEST_ERROR {
        text.truncate(text.floor_char_boundary(LONGEST_ERROR));
    }
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// JSON text in which an escaped NUL, which jsonb cannot hold, is U+FFFD.
pub(crate) fn without_nul(json: String) -> String {
    if !json.contains("\\u0000") {
        return json;
    }
    let mut out = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some(at) = rest.find('\\') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        if let Some(after) = after.strip_prefix("\\u0000") {
            out.push_str("\\ufffd");
            rest = after;
        } else {
            // The backslash and what it escapes, which may be another. A forged `RawValue` may end here, or go on with anything.
            let escape = 1 + after.chars().nth(1).map_or(0, char::len_utf8);
            out.push_str(&after[..escape]);
            rest = &after[escape..];
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f02_a_nul_in_an_output_becomes_the_replacement_character() {
        assert_eq!(without_nul(r#""a\u0000b""#.to_owned()), r#""a\ufffdb""#);
        assert_eq!(without_nul(r#""a\\u0000b\"\u0000""#.to_owned()), r#""a\\u0000b\"\ufffd""#);
        assert_eq!(without_nul(r"\u0000\é\".to_owned()), r"\ufffd\é\", "what is no json goes on to the database, which refuses it");
    }

    #[test]
    fn f17_a_long_error_is_cut_at_a_character() {
        let text = storable("é".repeat(LONGEST_ERROR));
        assert_eq!(text.len(), LONGEST_ERROR);
        assert_eq!(storable(format!("x{}", "é".repeat(LONGEST_ERROR))).len(), LONGEST_ERROR - 1);
    }
}
