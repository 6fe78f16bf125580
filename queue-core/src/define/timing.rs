//! When a schedule is due, and what becomes of the ticks that nobody was there for. Pure: the database says what time it is.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::{cron::Cron, span::shown};

/// At which moments a schedule has ticks.
#[derive(Clone, Debug)]
pub enum Timing {
    /// By a cron expression.
    Cron(Box<Cron>),
    /// At every multiple of this since 1970, in UTC.
    Every(TimeDelta),
}

/// What becomes of ticks that were missed: of which nobody knew until a minute (the schedule's grace) later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missed {
    /// One job for all of them, by the last. The default.
    #[default]
    Coalesce,
    /// None.
    Skip,
    /// A job for each of the last so many, at most 999.
    CatchUp(u16),
}

/// What becomes of a tick while a job of an earlier one is not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// It has no job. The default.
    #[default]
    Skip,
    /// It has its job, beside the other.
    Allow,
    /// It has its job, behind the other: under an ordering key of the schedule's own, unless the job has one.
    Queue,
}

/// What is to be done about a schedule that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Each of these, the earliest first.
    pub ticks: Vec<DateTime<Utc>>,
    /// What is done with them: `enqueue` or `miss`.
    pub verb: &'static str,
    /// Then it is due again.
    pub next: Option<DateTime<Utc>>,
}

impl Timing {
    /// Of what a schedule says.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(cron: Option<&str>, every: Option<Duration>, zone: &str) -> Result<Self, String> {
        match (cron, every) {
            (Some(expression), None) => Cron::new(expression, zone).map(|cron| Self::Cron(Box::new(cron))),
            (None, Some(every)) if every >= SHORTEST && every <= LONGEST => {
                let every = TimeDelta::from_std(every).map_err(|error| error.to_string())?;
                Ok(Self::Every(TimeDelta::milliseconds(every.num_milliseconds())))
            }
            (None, Some(every)) => Err(format!("the interval is {}; it must be one second to 365 days", shown(every))),
            _ => Err("a schedule has a cron expression or an interval; give one of them".to_owned()),
        }
    }

    /// The first tick after that moment.
    pub fn next(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Cron(cron) => cron.next(after),
            Self::Every(every) => {
                let every = every.num_milliseconds();
                DateTime::from_timestamp_millis((after.timestamp_millis().div_euclid(every) + 1).checked_mul(every)?)
            }
        }
    }

    /// The next so many ticks after that moment.
    pub fn next_ticks(&self, after: DateTime<Utc>, most: usize) -> Vec<DateTime<Utc>> {
        std::iter::successors(self.next(after), |tick| self.next(*tick)).take(most).collect()
    }

    /// The last so many ticks from this one to that moment, the earliest first. It looks back twice as far each time, so that few of those before
    /// are counted up.
    fn last_ticks(&self, from: DateTime<Utc>, until: DateTime<Utc>, most: usize) -> Vec<DateTime<Utc>> {
        let mut back = TimeDelta::minutes(2);
        loop {
            let begin = until.checked_sub_signed(back).filter(|begin| *begin >= from);
            let first = begin.map_or(Some(from), |begin| self.next(begin));
            let mut ticks: Vec<_> = std::iter::successors(first, |tick| self.next(*tick)).take_while(|tick| *tick <= until).collect();
            if ticks.len() >= most || begin.is_none() {
                return ticks.split_off(ticks.len().saturating_sub(most));
            }
            back += back;
        }
    }

    /// What to do about a schedule whose tick this is, at that moment; nothing if it is not due.
    pub fn due(
        &self,
        missed: Missed,
        grace: Duration,
        tick: DateTime<Utc>,
        skip: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> Option<Due> {
        let in_time = now.checked_sub_signed(TimeDelta::from_std(grace).ok()?)?;
        let one = |verb, next| Due { ticks: vec![tick], verb, next };
        let several = |most| Due { ticks: self.last_ticks(tick, now, most), verb: "enqueue", next: self.next(now) };
        Some(match missed {
            _ if tick > now => return None,
            _ if skip == Some(tick) || tick >= in_time => one("enqueue", self.next(tick)),
            Missed::Coalesce => several(1),
            Missed::Skip => one("miss", self.next(in_time)),
            Missed::CatchUp(most) => several(usize::from(most.max(1))),
        })
    }
}

/// A schedule's interval.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_hours(365 * 24);

impl Missed {
    /// As SQL has it: `coalesce`, `skip` or `catch_up(3)`.
    pub fn to_sql(self) -> String {
        match self {
            Self::Coalesce => "coalesce".to_owned(),
            Self::Skip => "skip".to_owned(),
            Self::CatchUp(most) => format!("catch_up({})", most.clamp(1, 999)),
        }
    }

    /// Of that word.
    pub fn from_sql(word: &str) -> Option<Self> {
        match word {
            "coalesce" => Some(Self::Coalesce),
            "skip" => Some(Self::Skip),
            _ => word.strip_prefix("catch_up(")?.strip_suffix(')')?.parse().ok().filter(|most| (1..1000).contains(most)).map(Self::CatchUp),
        }
    }
}

impl Overlap {
    /// Its name in SQL.
    pub fn to_sql(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Allow => "allow",
            Self::Queue => "queue",
        }
    }

    /// Of that word.
    pub fn from_sql(word: &str) -> Option<Self> {
        [Self::Skip, Self::Allow, Self::Queue].into_iter().find(|overlap| overlap.to_sql() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn hourly() -> Timing {
        Timing::new(Some("0 * * * *"), None, "UTC").unwrap_or_else(|error| panic!("{error}"))
    }

    const GRACE: Duration = Duration::from_mins(1);

    #[test]
    fn a_tick_within_the_grace_is_in_time_and_three_days_are_coalesced_into_the_last() {
        let (tick, now) = (at("2026-03-01T10:00:00Z"), at("2026-03-04T10:30:00Z"));
        let in_time = hourly().due(Missed::Skip, GRACE, tick, None, tick + TimeDelta::seconds(59));
        assert_eq!(in_time, Some(Due { ticks: vec![tick], verb: "enqueue", next: Some(at("2026-03-01T11:00:00Z")) }));
        let (last, next) = (at("2026-03-04T10:00:00Z"), Some(at("2026-03-04T11:00:00Z")));
        let due = |missed| hourly().due(missed, GRACE, tick, None, now);
        assert_eq!(due(Missed::Coalesce), Some(Due { ticks: vec![last], verb: "enqueue", next }));
        assert_eq!(due(Missed::Skip), Some(Due { ticks: vec![tick], verb: "miss", next }));
        let three = vec![last - TimeDelta::hours(2), last - TimeDelta::hours(1), last];
        assert_eq!(due(Missed::CatchUp(3)), Some(Due { ticks: three, verb: "enqueue", next }));
        assert_eq!(due(Missed::CatchUp(900)).map(|due| due.ticks.len()), Some(73));
        assert_eq!(hourly().due(Missed::Coalesce, GRACE, next.unwrap_or(now), None, now), None, "not before its time");
    }

    #[test]
    fn what_is_missed_is_skipped_up_to_what_is_still_in_time() {
        let minutely = Timing::new(Some("* * * * *"), None, "UTC").unwrap_or_else(|error| panic!("{error}"));
        let due = minutely.due(Missed::Skip, GRACE, at("2026-03-01T10:00:00Z"), None, at("2026-03-01T10:10:30Z"));
        assert_eq!(due.and_then(|due| due.next), Some(at("2026-03-01T10:10:00Z")));
    }

    #[test]
    fn a_tick_that_is_to_be_skipped_is_and_the_next_one_is_not() {
        let tick = at("2026-03-01T10:00:00Z");
        let late = tick + TimeDelta::days(3);
        let due = |skip| hourly().due(Missed::Coalesce, GRACE, tick, Some(skip), late).map(|due| due.ticks);
        assert_eq!(due(tick), Some(vec![tick]), "it is passed over by itself");
        assert_eq!(due(tick + TimeDelta::hours(1)), Some(vec![late]));
    }

    #[test]
    fn an_interval_counts_from_1970() {
        let every = |seconds| Timing::new(None, Some(Duration::from_secs(seconds)), "UTC");
        let next = every(90).map(|timing| timing.next_ticks(at("2026-03-01T00:00:00Z"), 2));
        assert_eq!(next, Ok(vec![at("2026-03-01T00:01:30Z"), at("2026-03-01T00:03:00Z")]));
    }

    #[test]
    fn an_interval_out_of_range_is_refused() {
        for (cron, every) in [(None, Some(0)), (None, Some(365 * 86_400 + 1)), (None, None), (Some("* * * * *"), Some(60))] {
            assert!(Timing::new(cron, every.map(Duration::from_secs), "UTC").is_err(), "{cron:?} {every:?}");
        }
    }

    #[test]
    fn words_of_sql_come_back_as_they_went() {
        for missed in [Missed::Coalesce, Missed::Skip, Missed::CatchUp(1), Missed::CatchUp(999)] {
            assert_eq!(Missed::from_sql(&missed.to_sql()), Some(missed));
        }
        assert_eq!([Missed::from_sql("catch_up(0)"), Missed::from_sql("catch_up(1000)"), Missed::from_sql("catch_up")], [None; 3]);
        assert_eq!(Overlap::from_sql(Overlap::Queue.to_sql()), Some(Overlap::Queue));
    }
}
