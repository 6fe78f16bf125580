//! Specification of a schedule, built by the program that creates or declares it.

use std::{fmt, ops::RangeInclusive, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::{
    define::{JobType, MAX_VERSION, Missed, Overlap, Timing, format_duration},
    enqueue::{self, EnqueueOptions, Sealing},
    error::Error,
    payload,
    schema::{Store, check_name},
    seal::Nonce,
};

/// Times, time zone and job of a schedule. Passed to [`create`](super::QueueSchedule::create), or declared by a worker.
///
/// A cron expression has five fields: minute, hour, day of the month, month and day of the week. An expression with six fields begins with
/// the seconds. Nicknames such as `@daily` are supported. If neither day field begins with `*`, a date matches if either day field matches,
/// as in Debian's cron. The function or worker that receives the schedule reports errors in the schedule.
///
/// ```
/// # use queue_core::job;
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Report { region: String }
/// use queue_core::schedule::Schedule;
///
/// let nightly = Schedule::cron("30 4 * * MON-FRI").tz("Europe/Berlin").job(&Report { region: "eu".into() });
/// assert_eq!(nightly.next(chrono::Utc::now(), 3)?.len(), 3);
/// # Ok::<(), queue_core::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a schedule does nothing until it is passed to `QueueSchedule::create` or to a worker"]
pub struct Schedule {
    cron: Option<String>,
    every: Option<Duration>,
    tz: Option<String>,
    missed: Missed,
    grace: Option<Duration>,
    overlap: Overlap,
    jitter: Option<Duration>,
    supersede: bool,
    job: Option<Result<ScheduledJob, String>>,
}

/// Job that each tick enqueues: the type name, the payload as JSON text, and the enqueue options.
#[derive(Clone)]
struct ScheduledJob {
    job_type: String,
    payload: String,
    options: Map<String, Value>,
    /// Keyring and stored type name for sealing the payload; `None` if the payload is not sealed.
    sealing: Option<Sealing>,
}

/// Job type, payload and options of a schedule, as sent to the database. The payload and the options are JSON texts.
#[derive(Clone)]
#[doc(hidden)]
pub struct Declaration {
    pub job_type: String,
    pub payload: String,
    pub options: String,
}

impl Schedule {
    /// Creates a schedule with the times of a cron expression, in UTC unless [`tz`](Self::tz) sets another time zone.
    pub fn cron(expression: impl Into<String>) -> Self {
        Self { cron: Some(expression.into()), ..Self::empty() }
    }

    /// Creates a schedule with a tick at every multiple of `interval` since 1970, regardless of the creation time. An hourly schedule
    /// thus has its ticks on the hour, in UTC. The interval must be between one second and 365 days.
    pub fn every(interval: Duration) -> Self {
        Self { every: Some(interval), ..Self::empty() }
    }

    fn empty() -> Self {
        let (missed, overlap) = (Missed::default(), Overlap::default());
        Self { cron: None, every: None, tz: None, missed, grace: None, overlap, jitter: None, supersede: false, job: None }
    }

    /// Sets the time zone of the cron expression, as a name in the IANA database such as `Europe/Berlin`. Default: UTC.
    pub fn tz(mut self, zone: impl Into<String>) -> Self {
        self.tz = Some(zone.into());
        self
    }

    /// Sets the handling of ticks that no worker handled in time. Default: [`Missed::Coalesce`].
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Sets the grace period, after which a tick that no worker has handled counts as missed. Range: one second to 365 days. Default: one
    /// minute.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Sets the handling of a tick that is due while a job of an earlier tick has not finished. Default: [`Overlap::Skip`].
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Sets the maximum jitter (random delay) of each tick's job, up to one day. The jitter spreads the jobs of schedules that have the
    /// same times. Default: no delay.
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = Some(most);
        self
    }

    /// Cancels the schedule's jobs that are waiting for a retry whenever the job type or payload of the schedule changes. The next tick
    /// then does not wait for these jobs. By default, the jobs are retried.
    pub fn supersede(mut self) -> Self {
        self.supersede = true;
        self
    }

    /// Sets the job that each tick enqueues, with the options of the job type. The handler of the job can read the tick with
    /// [`Context::tick`](crate::Context::tick).
    pub fn job<J: JobType>(self, job: &J) -> Self {
        self.job_with(job, |_| {})
    }

    /// Sets the job that each tick enqueues. `change` modifies the enqueue options, which are initially the options of the job type.
    /// Options that set a due time are rejected, because the schedule determines the due time.
    pub fn job_with<J: JobType>(mut self, job: &J, change: impl FnOnce(&mut EnqueueOptions)) -> Self {
        let mut options = EnqueueOptions::for_type::<J>();
        change(&mut options);
        let carried = enqueue::encode_deferred(job, &options).map_err(|error| error.to_string());
        self.job = Some(carried.and_then(|(payload, options, sealing)| {
            let options = serde_json::from_str(&options).map_err(|error| error.to_string())?;
            Ok(ScheduledJob { job_type: J::OPTIONS.name.to_owned(), payload, options, sealing })
        }));
        self
    }

    /// Sets the job that each tick enqueues, for a job type that is not defined in this program. The payload has version 1. Payloads that
    /// the database cannot store are rejected when the schedule is created or declared.
    pub fn job_json(mut self, job_type: impl Into<String>, payload: &Value) -> Self {
        let job_type = job_type.into();
        let payload = payload::encode(payload, payload::DEFAULT_LIMIT);
        self.job = Some(match payload {
            Ok(payload) => Ok(ScheduledJob { job_type, payload, options: Map::new(), sealing: None }),
            Err(why) => Err(format!("the payload of its job cannot be stored: {why}")),
        });
        self
    }

    /// Sets the job like [`job_json`](Self::job_json), but with the given payload version, from 1 to 9999.
    pub fn job_json_version(mut self, job_type: impl Into<String>, version: u16, payload: &Value) -> Self {
        self = self.job_json(job_type, payload);
        self.job = self.job.map(|job| match job {
            Ok(_) if !(1..=MAX_VERSION).contains(&version) => Err(format!("the payload version must be 1 to {MAX_VERSION}, not {version}")),
            Ok(mut job) if version > 1 => {
                job.options.insert("version".to_owned(), version.into());
                Ok(job)
            }
            other => other,
        });
        self
    }

    /// Returns the first ticks after the time `after`, at most `most`.
    ///
    /// # Errors
    /// Returns [`Error::Schedule`] if the expression, the interval or the zone is invalid.
    pub fn next(&self, after: DateTime<Utc>, most: usize) -> Result<Vec<DateTime<Utc>>, Error> {
        Ok(self.timing()?.next_ticks(after, most))
    }

    fn timing(&self) -> Result<Timing, Error> {
        let timing = Timing::new(self.cron.as_deref(), self.every, self.tz.as_deref().unwrap_or("UTC"));
        timing.map_err(|why| Error::Schedule { why })
    }

    /// Validates the schedule and returns the values to send to `store`.
    #[doc(hidden)]
    pub fn declaration(&self, name: &str, store: Store) -> Result<Declaration, Error> {
        check_name("schedule name", name)?;
        self.timing()?;
        let wrong = |why: &str| Err(Error::Schedule { why: why.to_owned() });
        let ScheduledJob { job_type, payload, mut options, sealing } = match &self.job {
            Some(Ok(job)) => job.clone(),
            Some(Err(why)) => return wrong(why),
            None => return wrong("the schedule has no job; add `.job(&payload)`"),
        };
        check_name("job type name", &job_type)?;
        if let Missed::CatchUp(most) = self.missed
            && !(1..1000).contains(&most)
        {
            return Err(Error::OutOfRange { what: "catch_up", value: most.to_string(), range: "1 to 999" });
        }
        let (second, day) = (Duration::from_secs(1), Duration::from_hours(24));
        check_span("grace", self.grace, second..=day * 365, "1 second to 365 days")?;
        check_span("jitter", self.jitter, Duration::ZERO..=day, "at most 1 day")?;
        let mut set = |key: &str, value: Option<Value>| drop(value.map(|value| options.insert(key.to_owned(), value)));
        let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64().into());
        set("cron", self.cron.as_deref().map(Into::into));
        set("every", seconds(self.every));
        set("tz", self.tz.as_deref().map(Into::into));
        set("missed", (self.missed != Missed::default()).then(|| self.missed.to_sql().into()));
        set("grace", seconds(self.grace));
        set("overlap", (self.overlap != Overlap::default()).then(|| self.overlap.to_sql().into()));
        set("jitter", seconds(self.jitter));
        set("supersede", self.supersede.then_some(Value::Bool(true)));
        // Workers declare the schedule repeatedly, and a different encrypted text would count as a changed payload. The nonce is
        // therefore derived from the payload, so that equal payloads have equal texts.
        let payload = sealing.map_or(Ok(None), |sealing| sealing.seal(&payload, store, Nonce::FromPayload).map(Some))?.unwrap_or(payload);
        Ok(Declaration { job_type, payload, options: Value::Object(options).to_string() })
    }
}

fn check_span(what: &'static str, span: Option<Duration>, fits: RangeInclusive<Duration>, range: &'static str) -> Result<(), Error> {
    match span.filter(|span| !fits.contains(span)) {
        Some(span) => Err(Error::OutOfRange { what, value: format_duration(span), range }),
        None => Ok(()),
    }
}

/// Omits the payload.
impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cron, every, tz) = (&self.cron, &self.every, &self.tz);
        f.debug_struct("Schedule").field("cron", cron).field("every", every).field("tz", tz).finish_non_exhaustive()
    }
}

/// Omits the payload.
impl fmt::Debug for Declaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Declaration").field("job_type", &self.job_type).finish_non_exhaustive()
    }
}
