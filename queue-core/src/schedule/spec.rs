//! What is said of a schedule, by whoever makes or declares it.

use std::{fmt, ops::RangeInclusive, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::{
    define::{JobType, Missed, NEWEST, Overlap, Timing, shown},
    enqueue::{self, EnqueueOptions, Sealing},
    error::Error,
    payload,
    schema::{Store, check_name},
    seal::Nonce,
};

/// A schedule, for [`create`](super::create) or for a worker that declares it: when, in which zone, and which job.
///
/// An expression has five fields (minute, hour, day of the month, month, day of the week), or six with seconds first; `@daily` and its like are
/// known too. If neither day begins with `*`, one of both is enough, as in Debian's cron. What is wrong with it is said by whoever takes it.
#[derive(Clone)]
#[must_use = "a schedule is made by `schedule::create`, or declared by a worker"]
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

/// A job type's name, a payload as JSON text, and the options of its enqueue.
#[derive(Clone)]
struct ScheduledJob {
    job_type: String,
    payload: String,
    options: Map<String, Value>,
    /// If the payload is to be stored encrypted.
    sealing: Option<Sealing>,
}

/// As it goes to the database: JSON texts.
#[derive(Clone)]
#[doc(hidden)]
pub struct Declaration {
    pub job_type: String,
    pub payload: String,
    pub options: String,
}

impl Schedule {
    /// At the times of a cron expression, in UTC unless [`tz`](Self::tz) says otherwise.
    pub fn cron(expression: impl Into<String>) -> Self {
        Self { cron: Some(expression.into()), ..Self::empty() }
    }

    /// At every multiple of this since 1970, so that it is the same for all: every hour is on the hour, in UTC. From one second to 365 days.
    pub fn every(interval: Duration) -> Self {
        Self { every: Some(interval), ..Self::empty() }
    }

    fn empty() -> Self {
        let (missed, overlap) = (Missed::default(), Overlap::default());
        Self { cron: None, every: None, tz: None, missed, grace: None, overlap, jitter: None, supersede: false, job: None }
    }

    /// The zone in which the expression is meant, by its name in the IANA database, as `Europe/Berlin`. Default UTC.
    pub fn tz(mut self, zone: impl Into<String>) -> Self {
        self.tz = Some(zone.into());
        self
    }

    /// What becomes of ticks that nobody was there for. Default [`Missed::Coalesce`].
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// How late a tick may be before it counts as missed. From one second to 365 days; default one minute.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// What becomes of a tick while a job of an earlier one is not over. Default [`Overlap::Skip`].
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Puts the job of each tick off by up to this, another part of it each time, so that many schedules of one moment do not all run at once. At
    /// most a day; default none.
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = Some(most);
        self
    }

    /// Made anew with another payload, the schedule cancels its jobs that have failed and wait for another try, so that the next tick does not wait
    /// for them. Default: they are tried on.
    pub fn supersede(mut self) -> Self {
        self.supersede = true;
        self
    }

    /// The job of each tick, with the options of its type. Its handler asks [`Context::tick`](crate::Context::tick) for which tick it runs.
    pub fn job<J: JobType>(self, job: &J) -> Self {
        self.job_with(job, |_| {})
    }

    /// As [`job`](Self::job), with other options than the type's. A time to run at is refused: the schedule says when.
    pub fn job_with<J: JobType>(mut self, job: &J, change: impl FnOnce(&mut EnqueueOptions)) -> Self {
        let mut options = EnqueueOptions::of::<J>();
        change(&mut options);
        let carried = enqueue::carried(job, &options).map_err(|error| error.to_string());
        self.job = Some(carried.and_then(|(payload, options, sealing)| {
            let options = serde_json::from_str(&options).map_err(|error| error.to_string())?;
            Ok(ScheduledJob { job_type: J::OPTIONS.name.to_owned(), payload, options, sealing })
        }));
        self
    }

    /// A job of a type that this program does not know, with a payload as version 1 of it is read. What the database would not keep is refused by whoever
    /// takes it.
    pub fn job_json(mut self, job_type: impl Into<String>, payload: &Value) -> Self {
        let job_type = job_type.into();
        let payload = payload::encode(payload, payload::DEFAULT_LIMIT);
        self.job = Some(match payload {
            Ok(payload) => Ok(ScheduledJob { job_type, payload, options: Map::new(), sealing: None }),
            Err(why) => Err(format!("the payload of its job cannot be stored: {why}")),
        });
        self
    }

    /// As [`job_json`](Self::job_json), with a payload as this version of the type is read, from 1 to 9999.
    pub fn job_json_version(mut self, job_type: impl Into<String>, version: u16, payload: &Value) -> Self {
        self = self.job_json(job_type, payload);
        self.job = self.job.map(|job| match job {
            Ok(_) if !(1..=NEWEST).contains(&version) => Err(format!("the version of a payload is from 1 to {NEWEST}, not {version}")),
            Ok(mut job) if version > 1 => {
                job.options.insert("version".to_owned(), version.into());
                Ok(job)
            }
            other => other,
        });
        self
    }

    /// The first ticks after that moment.
    ///
    /// # Errors
    /// [`Error::Schedule`]: the expression or the zone is wrong.
    pub fn next(&self, after: DateTime<Utc>, most: usize) -> Result<Vec<DateTime<Utc>>, Error> {
        Ok(self.timing()?.next_ticks(after, most))
    }

    fn timing(&self) -> Result<Timing, Error> {
        let timing = Timing::new(self.cron.as_deref(), self.every, self.tz.as_deref().unwrap_or("UTC"));
        timing.map_err(|why| Error::Schedule { why })
    }

    /// All of it, checked, as it goes to this store.
    #[doc(hidden)]
    pub fn declaration(&self, name: &str, store: Store) -> Result<Declaration, Error> {
        check_name("schedule name", name)?;
        self.timing()?;
        let wrong = |why: &str| Err(Error::Schedule { why: why.to_owned() });
        let ScheduledJob { job_type, payload, mut options, sealing } = match &self.job {
            Some(Ok(job)) => job.clone(),
            Some(Err(why)) => return wrong(why),
            None => return wrong("a schedule has a job; say `.job(&payload)`"),
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
        let mut say = |key: &str, value: Option<Value>| drop(value.map(|value| options.insert(key.to_owned(), value)));
        let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64().into());
        say("cron", self.cron.as_deref().map(Into::into));
        say("every", seconds(self.every));
        say("tz", self.tz.as_deref().map(Into::into));
        say("missed", (self.missed != Missed::default()).then(|| self.missed.to_sql().into()));
        say("grace", seconds(self.grace));
        say("overlap", (self.overlap != Overlap::default()).then(|| self.overlap.to_sql().into()));
        say("jitter", seconds(self.jitter));
        say("supersede", self.supersede.then_some(Value::Bool(true)));
        // Declared by many, and again and again: only another payload is to be another text.
        let payload = sealing.map_or(Ok(None), |sealing| sealing.seal(&payload, store, Nonce::OfPayload).map(Some))?.unwrap_or(payload);
        Ok(Declaration { job_type, payload, options: Value::Object(options).to_string() })
    }
}

fn check_span(what: &'static str, span: Option<Duration>, fits: RangeInclusive<Duration>, range: &'static str) -> Result<(), Error> {
    match span.filter(|span| !fits.contains(span)) {
        Some(span) => Err(Error::OutOfRange { what, value: shown(span), range }),
        None => Ok(()),
    }
}

/// Without the payload.
impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cron, every, tz) = (&self.cron, &self.every, &self.tz);
        f.debug_struct("Schedule").field("cron", cron).field("every", every).field("tz", tz).finish_non_exhaustive()
    }
}

/// Without the payload.
impl fmt::Debug for Declaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Declaration").field("job_type", &self.job_type).finish_non_exhaustive()
    }
}
