//! From a verdict to what is written for it: its word, its wait, the ordering key that goes on, its columns.
//!
//! The one place that decides this. Statements that end jobs are bound from here, and every match over verdicts in here names each of them.

use std::{fmt, time::Duration};

use super::{
    retry::Verdict,
    text::{storable_error, storable_output},
};

/// The word for a job that completed and leaves no record.
const FORGET: &str = "forget";

/// The ordering key of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderingKey {
    /// Its hash, as the tables have it.
    pub id: i64,
    /// Whether the key goes on once the job is dead.
    pub skips_dead: bool,
}

/// What an attempt is in the figures of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// It completed its job.
    Completed,
    /// It failed, and another follows.
    Retried,
    /// It failed for good.
    Dead,
    /// Its job was cancelled.
    Cancelled,
    /// It asked to be called again.
    Snoozed,
    /// It was broken off.
    Released,
    /// None: the job was over before.
    NoAttempt,
}

/// Who is told what a job comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tells {
    /// Nobody.
    #[default]
    Nobody,
    /// The gather that counts it, and only that.
    Gather,
    /// The job that spawned it, or nodes that wait for it.
    Others,
}

/// With what a durable job begins anew.
#[derive(Clone, PartialEq, Eq)]
pub struct Anew {
    /// The name of its type and its version, as they are stored.
    pub stored: String,
    /// JSON text, as it goes to the store.
    pub payload: String,
}

/// Without the payload, which may be secret.
impl fmt::Debug for Anew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Anew").field("stored", &self.stored).finish_non_exhaustive()
    }
}

/// What is written for one attempt.
#[derive(Clone, Debug)]
pub struct Ending {
    verdict: Verdict,
    attempt: i16,
    key: Option<OrderingKey>,
    keep: bool,
    tells: Tells,
    ran: Duration,
    output: Option<String>,
    error: Option<String>,
    signals: Vec<String>,
    anew: Option<Anew>,
}

impl Ending {
    /// The ending of attempt number `attempt` of a job with this ordering key. Texts are added by [`output`](Self::with_output) and
    /// [`error`](Self::with_error).
    pub fn new(verdict: Verdict, attempt: i16, key: Option<OrderingKey>) -> Self {
        let (ran, signals) = (Duration::ZERO, Vec::new());
        Self { verdict, attempt, key, keep: true, tells: Tells::Nobody, ran, output: None, error: None, signals, anew: None }
    }

    /// Whether a completed job leaves a record.
    #[must_use]
    pub fn kept(mut self, keep: bool) -> Self {
        self.keep = keep;
        self
    }

    /// Who is told what the job comes to.
    #[must_use]
    pub fn telling(mut self, tells: Tells) -> Self {
        self.tells = tells;
        self
    }

    /// After this time.
    #[must_use]
    pub fn after(mut self, ran: Duration) -> Self {
        self.ran = ran;
        self
    }

    /// With this output, as JSON text. What jsonb cannot hold is replaced.
    #[must_use]
    pub fn with_output(mut self, output: Option<String>) -> Self {
        self.output = output.map(storable_output);
        self
    }

    /// With this error. It is cut to what is kept; what text cannot hold is replaced.
    #[must_use]
    pub fn with_error(mut self, error: Option<String>) -> Self {
        self.error = error.map(storable_error);
        self
    }

    /// Waiting for any of these signals.
    #[must_use]
    pub fn waiting_for(mut self, signals: Vec<String>) -> Self {
        self.signals = signals;
        self
    }

    /// Beginning anew with this.
    #[must_use]
    pub fn beginning_anew(mut self, anew: Option<Anew>) -> Self {
        self.anew = anew;
        self
    }

    /// With what the job begins anew, if it does.
    pub fn anew(&self) -> Option<&Anew> {
        self.anew.as_ref()
    }

    /// The signals that the job waits for, if it is parked.
    pub fn signals(&self) -> &[String] {
        &self.signals
    }

    /// The verdict.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The number of the attempt.
    pub fn attempt(&self) -> i16 {
        self.attempt
    }

    /// How long the attempt took.
    pub fn ran(&self) -> Duration {
        self.ran
    }

    /// The same in milliseconds, as the statements take it.
    pub fn ran_ms(&self) -> i32 {
        i32::try_from(self.ran.as_millis()).unwrap_or(i32::MAX)
    }

    /// JSON text.
    pub fn output(&self) -> Option<&str> {
        self.output.as_deref()
    }

    /// Why the attempt failed.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The verdict's word in the statements.
    pub fn word(&self) -> &'static str {
        match self.verdict {
            // Its parent is told what it gave, which is read from its record.
            Verdict::Complete if self.keep || self.is_child() => "complete",
            Verdict::Complete => FORGET,
            Verdict::Retry(_) => "retry",
            // Its own statement parks it, or begins it anew, and any other has it called again.
            Verdict::Snooze(_) | Verdict::Park(_) | Verdict::Restart => "snooze",
            // Its own statement ends it, and any other gives it back.
            Verdict::Release | Verdict::Expire => "release",
            Verdict::Cancel => "cancel",
            Verdict::Dead => "dead",
        }
    }

    /// Every word that [`word`](Self::word) can say.
    pub const WORDS: [&'static str; 7] = ["complete", FORGET, "retry", "snooze", "release", "cancel", "dead"];

    /// What the attempt is in the figures of the past.
    pub fn counted(&self) -> Counted {
        match self.verdict {
            Verdict::Complete => Counted::Completed,
            Verdict::Retry(_) => Counted::Retried,
            Verdict::Dead => Counted::Dead,
            Verdict::Cancel => Counted::Cancelled,
            Verdict::Snooze(_) | Verdict::Park(_) | Verdict::Restart => Counted::Snoozed,
            Verdict::Release => Counted::Released,
            Verdict::Expire => Counted::NoAttempt,
        }
    }

    /// How long until the job is due again, if it was put off.
    pub fn wait(&self) -> Option<Duration> {
        match self.verdict {
            Verdict::Retry(wait) | Verdict::Snooze(wait) => Some(wait),
            Verdict::Park(wait) => wait,
            Verdict::Complete | Verdict::Restart | Verdict::Release | Verdict::Cancel | Verdict::Expire | Verdict::Dead => None,
        }
    }

    /// The same in milliseconds, as the statements take it; zero for none.
    pub fn wait_ms(&self) -> f64 {
        self.wait().unwrap_or_default().as_secs_f64() * 1000.0
    }

    /// The ordering key of the job.
    pub fn key(&self) -> Option<i64> {
        self.key.map(|key| key.id)
    }

    /// The ordering key that goes on without this job from now on.
    pub fn freed(&self) -> Option<i64> {
        let key = self.key?;
        match self.verdict {
            Verdict::Complete | Verdict::Cancel | Verdict::Expire => Some(key.id),
            Verdict::Dead => key.skips_dead.then_some(key.id),
            Verdict::Retry(_) | Verdict::Snooze(_) | Verdict::Park(_) | Verdict::Restart | Verdict::Release => None,
        }
    }

    /// Whether there is nothing to say but that the job completed: it may then be settled by its lease alone, and a part counted by its number.
    pub fn is_plain(&self) -> bool {
        let is_first = self.verdict == Verdict::Complete && self.keep && self.output.is_none() && self.attempt == 1 && self.key.is_none();
        is_first && self.tells != Tells::Others
    }

    /// Whether the job has an ordering key.
    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Whether another job is told what this one comes to.
    pub fn is_child(&self) -> bool {
        self.tells != Tells::Nobody
    }

    /// Whether this completes a job that a gather counts, and nobody else is told.
    pub fn completes_part(&self) -> bool {
        self.tells == Tells::Gather && self.verdict == Verdict::Complete
    }

    /// Whether the job is completed and leaves no record: then its own statement ends it, and any other refuses it.
    pub fn is_forgotten(&self) -> bool {
        self.word() == FORGET
    }

    /// Whether the job is completed.
    pub fn is_complete(&self) -> bool {
        self.verdict == Verdict::Complete
    }

    /// Whether the job goes back uncharged.
    pub fn is_release(&self) -> bool {
        self.verdict == Verdict::Release
    }

    /// Whether the job was not begun because its time is over: settled by a statement of its own.
    pub fn is_expiry(&self) -> bool {
        self.verdict == Verdict::Expire
    }

    /// Whether the job is to wait for a signal: settled by a statement of its own.
    pub fn is_park(&self) -> bool {
        matches!(self.verdict, Verdict::Park(_))
    }

    /// Whether the job begins anew: settled by a statement of its own.
    pub fn is_restart(&self) -> bool {
        self.verdict == Verdict::Restart
    }

    /// Leaves out the output; returns whether there was one.
    pub fn leave_output_out(&mut self) -> bool {
        self.output.take().is_some()
    }

    /// Leaves out the texts that the database would not take; returns whether there were any still.
    pub fn redact(&mut self) -> bool {
        const PLACEHOLDER: &str = "the text of this error cannot be stored";
        let had_output = self.leave_output_out();
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
    fn each_verdict_has_a_word_of_its_own() {
        let words = every().map(|verdict| Ending::new(verdict, 1, None).word());
        assert_eq!(words, ["complete", "retry", "dead", "snooze", "release", "cancel"]);
        assert_eq!(Ending::new(Verdict::Complete, 1, None).kept(false).word(), "forget");
        assert!(words.iter().all(|word| Ending::WORDS.contains(word)));
    }

    #[test]
    fn a_key_goes_on_when_its_job_is_over() {
        let freed = |key| every().map(|verdict| Ending::new(verdict, 1, key).freed().is_some());
        assert_eq!(freed(KEY), [true, false, false, false, false, true]);
        assert_eq!(freed(SKIPS), [true, false, true, false, false, true]);
        assert_eq!(freed(None), [false; 6]);
    }

    #[test]
    fn only_what_waits_has_a_wait() {
        assert_eq!(every().map(|verdict| Ending::new(verdict, 1, None).wait()), [None, Some(WAIT), None, Some(WAIT), None, None]);
    }

    #[test]
    fn plain_is_a_first_attempt_with_nothing_to_tell() {
        let plain = |attempt, key| Ending::new(Verdict::Complete, attempt, key);
        assert!(plain(1, None).is_plain());
        assert!(!plain(2, None).is_plain() && !plain(1, KEY).is_plain() && !plain(1, None).kept(false).is_plain());
        assert!(!plain(1, None).with_output(Some("1".to_owned())).is_plain());
        let telling = |tells| plain(1, None).telling(tells);
        assert!(telling(Tells::Gather).is_plain() && telling(Tells::Gather).completes_part() && !telling(Tells::Others).is_plain());
        assert!(!telling(Tells::Others).completes_part() && !Ending::new(Verdict::Dead, 1, None).telling(Tells::Gather).completes_part());
    }

    #[test]
    fn what_expires_frees_its_key_and_whoever_does_not_know_of_it_gives_it_back() {
        let ending = Ending::new(Verdict::Expire, 1, KEY);
        assert!(ending.is_expiry() && !ending.is_release() && !ending.is_plain());
        assert_eq!((ending.word(), ending.freed(), ending.wait()), ("release", Some(7), None));
    }

    #[test]
    fn what_begins_anew_keeps_its_key_and_whoever_does_not_know_of_it_calls_it_again() {
        let anew = Anew { stored: "x".to_owned(), payload: "{\"secret\": 1}".to_owned() };
        let ending = Ending::new(Verdict::Restart, 2, SKIPS).beginning_anew(Some(anew));
        assert!(ending.is_restart() && !ending.is_park() && !ending.is_release() && !ending.is_plain());
        assert_eq!((ending.word(), ending.freed(), ending.wait(), ending.counted()), ("snooze", None, None, Counted::Snoozed));
        assert!(!format!("{ending:?}").contains("secret"), "no payload is logged");
    }

    #[test]
    fn what_is_parked_keeps_its_signals_and_whoever_does_not_know_of_it_calls_it_again() {
        let mut ending = Ending::new(Verdict::Park(Some(WAIT)), 2, KEY).waiting_for(vec!["paid".to_owned()]);
        assert!(ending.is_park() && !ending.is_release() && !ending.is_plain());
        assert_eq!((ending.word(), ending.freed(), ending.wait()), ("snooze", None, Some(WAIT)));
        assert!(!ending.redact(), "there is nothing to leave out");
        assert_eq!(ending.signals(), ["paid"]);
        assert_eq!(Ending::new(Verdict::Park(None), 2, None).wait(), None);
    }

    #[test]
    fn texts_are_left_out_once() {
        let mut ending = Ending::new(Verdict::Dead, 1, None).with_output(Some("1".to_owned())).with_error(Some("e".to_owned()));
        assert!(ending.redact());
        assert_eq!(ending.output(), None);
        assert!(!ending.redact(), "there is nothing left to leave out");
    }
}
