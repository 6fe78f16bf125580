//! Mapping from a verdict to the parameters of the statement that writes the verdict, such as the verdict name and the delay.
//!
//! Statements that end jobs take their parameters only from this module. Its matches over verdicts are exhaustive.

use std::{fmt, time::Duration};

use super::{
    retry::Verdict,
    text::{storable_error, storable_output},
};

/// Verdict name of a completed job that leaves no record.
const FORGET: &str = "forget";

/// Ordering key of a job, and the key's policy for dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderingKey {
    /// Hash of the key, as stored in the tables.
    pub id: i64,
    /// Whether the key's next job runs although an earlier job of the key is a dead letter.
    pub skips_dead: bool,
}

/// History category of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryOutcome {
    /// The attempt completed its job.
    Completed,
    /// The attempt failed and the job is retried.
    Retried,
    /// The attempt failed and the job became a dead letter.
    Dead,
    /// The attempt ended because the job was cancelled.
    Cancelled,
    /// The attempt snoozed, parked or restarted the job.
    Snoozed,
    /// The attempt was interrupted or did not start, and the job is ready again.
    Released,
    /// The job ended before an attempt started, so no attempt is counted.
    NoAttempt,
}

/// Jobs that are notified when a job ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dependents {
    /// No job is notified.
    #[default]
    None,
    /// The map that counts the job as a part is notified.
    Gather,
    /// The job that spawned this job, or the flow nodes that wait for this job, are notified.
    Jobs,
}

/// Statement that writes a verdict: the common statement or a separate statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettlePath {
    /// Common statement, for all verdicts without a separate statement.
    Settle,
    /// Completes the job and leaves no record.
    Forget,
    /// Parks the job until a signal arrives or the timeout elapses.
    Park,
    /// Restarts the job with another payload.
    Restart,
    /// Expires a job that has not started.
    Expire,
}

/// New payload of a durable job that restarts.
#[derive(Clone, PartialEq, Eq)]
pub struct RestartPayload {
    /// Stored name of the job type, which includes the version of the payload.
    pub stored: String,
    /// Payload as JSON text, sealed if the job type requires it.
    pub payload: String,
}

/// Omits the payload because it may be secret.
impl fmt::Debug for RestartPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestartPayload").field("stored", &self.stored).finish_non_exhaustive()
    }
}

/// Verdict on one attempt, with all values that are written for the verdict.
#[derive(Clone, Debug)]
pub struct Ending {
    verdict: Verdict,
    attempt: i16,
    key: Option<OrderingKey>,
    keep: bool,
    dependents: Dependents,
    ran: Duration,
    output: Option<String>,
    error: Option<String>,
    signals: Vec<String>,
    restart: Option<RestartPayload>,
}

impl Ending {
    /// Creates the ending for attempt number `attempt`. `key` is the ordering key of the job. The methods
    /// [`with_output`](Self::with_output) and [`with_error`](Self::with_error) add the output and the error.
    pub fn new(verdict: Verdict, attempt: i16, key: Option<OrderingKey>) -> Self {
        let (ran, signals) = (Duration::ZERO, Vec::new());
        Self { verdict, attempt, key, keep: true, dependents: Dependents::None, ran, output: None, error: None, signals, restart: None }
    }

    /// Sets whether a completed job leaves a record.
    #[must_use]
    pub fn with_record(mut self, keep: bool) -> Self {
        self.keep = keep;
        self
    }

    /// Sets which jobs are notified when the job ends.
    #[must_use]
    pub fn with_dependents(mut self, dependents: Dependents) -> Self {
        self.dependents = dependents;
        self
    }

    /// Sets the duration of the attempt.
    #[must_use]
    pub fn with_duration(mut self, ran: Duration) -> Self {
        self.ran = ran;
        self
    }

    /// Sets the output as JSON text. Escape sequences that jsonb cannot store are replaced.
    #[must_use]
    pub fn with_output(mut self, output: Option<String>) -> Self {
        self.output = output.map(storable_output);
        self
    }

    /// Sets the error. The error is truncated to 8 KiB, and NUL characters are replaced because the database cannot store them.
    #[must_use]
    pub fn with_error(mut self, error: Option<String>) -> Self {
        self.error = error.map(storable_error);
        self
    }

    /// Sets the signals for which a parked job is waiting.
    #[must_use]
    pub fn with_signals(mut self, signals: Vec<String>) -> Self {
        self.signals = signals;
        self
    }

    /// Sets the new payload of a job that restarts.
    #[must_use]
    pub fn with_restart(mut self, restart: Option<RestartPayload>) -> Self {
        self.restart = restart;
        self
    }

    /// Returns the new payload of a job that restarts, or `None` for other verdicts.
    pub fn restart(&self) -> Option<&RestartPayload> {
        self.restart.as_ref()
    }

    /// Returns the signals for which a parked job is waiting.
    pub fn signals(&self) -> &[String] {
        &self.signals
    }

    /// Returns the verdict on the attempt.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Returns the attempt number.
    pub fn attempt(&self) -> i16 {
        self.attempt
    }

    /// Returns the duration of the attempt.
    pub fn ran(&self) -> Duration {
        self.ran
    }

    /// Returns the duration of the attempt in milliseconds.
    pub fn ran_ms(&self) -> i32 {
        i32::try_from(self.ran.as_millis()).unwrap_or(i32::MAX)
    }

    /// Returns the output as JSON text.
    pub fn output(&self) -> Option<&str> {
        self.output.as_deref()
    }

    /// Returns the error of the attempt.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Returns the verdict name, which the statements take as a parameter.
    pub fn verdict_name(&self) -> &'static str {
        match self.verdict {
            // A record is required if the job has dependents, because dependents read the output from the record.
            Verdict::Complete if self.keep || self.has_dependents() => "complete",
            Verdict::Complete => FORGET,
            Verdict::Retry(_) => "retry",
            // Jobs are parked and restarted by separate statements, which do not take this name. The common statement would snooze them.
            Verdict::Snooze(_) | Verdict::Park(_) | Verdict::Restart => "snooze",
            // Jobs are expired by a separate statement, which does not take this name. The common statement would release them.
            Verdict::Release | Verdict::Expire => "release",
            Verdict::Cancel => "cancel",
            Verdict::Dead => "dead",
        }
    }

    /// Values that [`verdict_name`](Self::verdict_name) can return.
    pub const VERDICT_NAMES: [&'static str; 7] = ["complete", FORGET, "retry", "snooze", "release", "cancel", "dead"];

    /// Returns the history category of the attempt.
    pub fn history_outcome(&self) -> HistoryOutcome {
        match self.verdict {
            Verdict::Complete => HistoryOutcome::Completed,
            Verdict::Retry(_) => HistoryOutcome::Retried,
            Verdict::Dead => HistoryOutcome::Dead,
            Verdict::Cancel => HistoryOutcome::Cancelled,
            Verdict::Snooze(_) | Verdict::Park(_) | Verdict::Restart => HistoryOutcome::Snoozed,
            Verdict::Release => HistoryOutcome::Released,
            Verdict::Expire => HistoryOutcome::NoAttempt,
        }
    }

    /// Returns the delay until the job is due again. Returns `None` for a verdict without a delay.
    pub fn wait(&self) -> Option<Duration> {
        match self.verdict {
            Verdict::Retry(wait) | Verdict::Snooze(wait) => Some(wait),
            Verdict::Park(wait) => wait,
            Verdict::Complete | Verdict::Restart | Verdict::Release | Verdict::Cancel | Verdict::Expire | Verdict::Dead => None,
        }
    }

    /// Returns the delay of [`wait`](Self::wait) in milliseconds, or zero if the verdict has no delay.
    pub fn wait_ms(&self) -> f64 {
        self.wait().unwrap_or_default().as_secs_f64() * 1000.0
    }

    /// Returns the job's ordering key, or `None` if the job has none.
    pub fn key(&self) -> Option<i64> {
        self.key.map(|key| key.id)
    }

    /// Returns the job's ordering key if the verdict releases the key to the next job, and `None` otherwise.
    pub fn released_key(&self) -> Option<i64> {
        let key = self.key?;
        match self.verdict {
            Verdict::Complete | Verdict::Cancel | Verdict::Expire => Some(key.id),
            Verdict::Dead => key.skips_dead.then_some(key.id),
            Verdict::Retry(_) | Verdict::Snooze(_) | Verdict::Park(_) | Verdict::Restart | Verdict::Release => None,
        }
    }

    /// Returns whether only the job's completion needs to be written: the first attempt completed the job, and the job keeps its record
    /// and has neither an output nor an ordering key. A map may count the job as a part, but no other job may depend on it.
    pub fn is_plain(&self) -> bool {
        let is_first = self.verdict == Verdict::Complete && self.keep && self.output.is_none() && self.attempt == 1 && self.key.is_none();
        is_first && self.dependents != Dependents::Jobs
    }

    /// Returns whether another job is notified when this job ends.
    pub fn has_dependents(&self) -> bool {
        self.dependents != Dependents::None
    }

    /// Returns whether the verdict completes a part of a map. No other job depends on the part.
    pub fn completes_part(&self) -> bool {
        self.dependents == Dependents::Gather && self.verdict == Verdict::Complete
    }

    /// Returns whether the verdict completes the job.
    pub fn is_complete(&self) -> bool {
        self.verdict == Verdict::Complete
    }

    /// Returns the statement that writes the verdict.
    pub fn path(&self) -> SettlePath {
        match self.verdict {
            Verdict::Complete if self.verdict_name() == FORGET => SettlePath::Forget,
            Verdict::Expire => SettlePath::Expire,
            Verdict::Park(_) => SettlePath::Park,
            Verdict::Restart => SettlePath::Restart,
            Verdict::Complete | Verdict::Retry(_) | Verdict::Snooze(_) | Verdict::Release | Verdict::Cancel | Verdict::Dead => {
                SettlePath::Settle
            }
        }
    }

    /// Removes the output. Returns whether the ending had an output.
    pub fn remove_output(&mut self) -> bool {
        self.output.take().is_some()
    }

    /// Replaces the error and removes the output, after the database rejected one of them. Returns whether the ending changed.
    pub fn redact(&mut self) -> bool {
        const PLACEHOLDER: &str = "the text of this error cannot be stored";
        let had_output = self.remove_output();
        match &mut self.error {
            Some(error) if error != PLACEHOLDER => {
                PLACEHOLDER.clone_into(error);
                true
            }
            _ => had_output,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Option<OrderingKey> = Some(OrderingKey { id: 7, skips_dead: false });
    const SKIPS: Option<OrderingKey> = Some(OrderingKey { id: 7, skips_dead: true });
    const WAIT: Duration = Duration::from_secs(2);

    fn every() -> [Verdict; 6] {
        [Verdict::Complete, Verdict::Retry(WAIT), Verdict::Dead, Verdict::Snooze(WAIT), Verdict::Release, Verdict::Cancel]
    }

    #[test]
    fn verdict_names_are_distinct() {
        let words = every().map(|verdict| Ending::new(verdict, 1, None).verdict_name());
        assert_eq!(words, ["complete", "retry", "dead", "snooze", "release", "cancel"]);
        assert_eq!(Ending::new(Verdict::Complete, 1, None).with_record(false).verdict_name(), "forget");
        assert!(words.iter().all(|word| Ending::VERDICT_NAMES.contains(word)));
    }

    #[test]
    fn a_finished_job_releases_its_key() {
        let freed = |key| every().map(|verdict| Ending::new(verdict, 1, key).released_key().is_some());
        assert_eq!(freed(KEY), [true, false, false, false, false, true]);
        assert_eq!(freed(SKIPS), [true, false, true, false, false, true]);
        assert_eq!(freed(None), [false; 6]);
    }

    #[test]
    fn only_retries_and_snoozes_have_a_delay() {
        assert_eq!(every().map(|verdict| Ending::new(verdict, 1, None).wait()), [None, Some(WAIT), None, Some(WAIT), None, None]);
    }

    #[test]
    fn only_a_completed_first_attempt_without_output_is_plain() {
        let plain = |attempt, key| Ending::new(Verdict::Complete, attempt, key);
        assert!(plain(1, None).is_plain());
        assert!(!plain(2, None).is_plain() && !plain(1, KEY).is_plain() && !plain(1, None).with_record(false).is_plain());
        assert!(!plain(1, None).with_output(Some("1".to_owned())).is_plain());
        let with_dependents = |dependents| plain(1, None).with_dependents(dependents);
        assert!(
            with_dependents(Dependents::Gather).is_plain()
                && with_dependents(Dependents::Gather).completes_part()
                && !with_dependents(Dependents::Jobs).is_plain()
        );
        assert!(
            !with_dependents(Dependents::Jobs).completes_part()
                && !Ending::new(Verdict::Dead, 1, None).with_dependents(Dependents::Gather).completes_part()
        );
    }

    #[test]
    fn an_expiry_releases_its_key_and_is_a_release_to_older_statements() {
        let ending = Ending::new(Verdict::Expire, 1, KEY);
        assert!(ending.path() == SettlePath::Expire && !ending.is_plain());
        assert_eq!((ending.verdict_name(), ending.released_key(), ending.wait()), ("release", Some(7), None));
    }

    #[test]
    fn a_restart_keeps_its_key_and_is_a_snooze_to_older_statements() {
        let restart = RestartPayload { stored: "x".to_owned(), payload: "{\"secret\": 1}".to_owned() };
        let ending = Ending::new(Verdict::Restart, 2, SKIPS).with_restart(Some(restart));
        assert!(ending.path() == SettlePath::Restart && !ending.is_plain());
        assert_eq!(
            (ending.verdict_name(), ending.released_key(), ending.wait(), ending.history_outcome()),
            ("snooze", None, None, HistoryOutcome::Snoozed)
        );
        assert!(!format!("{ending:?}").contains("secret"), "no payload is logged");
    }

    #[test]
    fn a_parked_job_keeps_its_signals_and_is_a_snooze_to_older_statements() {
        let mut ending = Ending::new(Verdict::Park(Some(WAIT)), 2, KEY).with_signals(vec!["paid".to_owned()]);
        assert!(ending.path() == SettlePath::Park && !ending.is_plain());
        assert_eq!((ending.verdict_name(), ending.released_key(), ending.wait()), ("snooze", None, Some(WAIT)));
        assert!(!ending.redact(), "there is nothing to remove");
        assert_eq!(ending.signals(), ["paid"]);
        assert_eq!(Ending::new(Verdict::Park(None), 2, None).wait(), None);
    }

    #[test]
    fn texts_are_redacted_once() {
        let mut ending = Ending::new(Verdict::Dead, 1, None).with_output(Some("1".to_owned())).with_error(Some("e".to_owned()));
        assert!(ending.redact());
        assert_eq!(ending.output(), None);
        assert!(!ending.redact(), "there is nothing left to remove");
    }
}
