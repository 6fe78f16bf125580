//! Tick times of a schedule, and the handling of missed ticks. The caller passes the database's current time, so the clock of the worker
//! has no effect.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use queue_cron::Cron;

use super::duration::format_duration;

/// Tick times of a schedule.
#[derive(Clone, Debug)]
pub enum Timing {
    /// Times that match a cron expression.
    Cron(Box<Cron>),
    /// Every multiple of the given duration, counted from 1970-01-01 00:00 UTC.
    Every(TimeDelta),
}

/// Policy for missed ticks. A tick is missed if no worker handled it within the schedule's grace period, one minute by default.
///
/// ```
/// use queue_core::schedule::{Missed, Schedule};
///
/// let report = Schedule::cron("0 6 * * *").missed(Missed::CatchUp(7)); // up to a week of daily reports
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missed {
    /// Enqueues a single job, for the last of the missed ticks. The default.
    #[default]
    Coalesce,
    /// Enqueues no job for missed ticks.
    Skip,
    /// Enqueues one job for each of the last missed ticks, up to the given number of ticks (at most 999).
    CatchUp(u16),
}

/// Policy for a tick that is due while a job of an earlier tick has not finished.
///
/// ```
/// use queue_core::schedule::{Overlap, Schedule};
/// use std::time::Duration;
///
/// let sync = Schedule::every(Duration::from_secs(60)).overlap(Overlap::Queue);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// Enqueues no job for the tick. The default.
    #[default]
    Skip,
    /// Enqueues a job, which can run concurrently with the earlier job.
    Allow,
    /// Enqueues a job, which runs after the earlier job. Jobs without an ordering key get a key derived from the schedule's name.
    Queue,
}

/// Ticks of a due schedule, and the action for these ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueTicks {
    /// Ticks to handle, from the earliest to the latest.
    pub ticks: Vec<DateTime<Utc>>,
    /// Action for the ticks: `enqueue` enqueues their jobs, and `miss` only records the ticks as missed.
    pub action: &'static str,
    /// Next due time of the schedule; `None` if no tick follows.
    pub next: Option<DateTime<Utc>>,
}

impl Timing {
    /// Creates the timing from the settings of a schedule.
    ///
    /// # Errors
    /// Returns a description of the invalid setting.
    pub fn new(cron: Option<&str>, every: Option<Duration>, zone: &str) -> Result<Self, String> {
        match (cron, every) {
            (Some(expression), None) => Cron::new(expression, zone).map(|cron| Self::Cron(Box::new(cron))),
            (None, Some(every)) if every >= MIN_INTERVAL && every <= MAX_INTERVAL => {
                let every = TimeDelta::from_std(every).map_err(|error| error.to_string())?;
                Ok(Self::Every(TimeDelta::milliseconds(every.num_milliseconds())))
            }
            (None, Some(every)) => Err(format!("the interval is {}; it must be one second to 365 days", format_duration(every))),
            _ => Err("a schedule needs either a cron expression or an interval".to_owned()),
        }
    }

    /// Returns the first tick after `after`.
    pub fn next(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Cron(cron) => cron.next(after),
            Self::Every(every) => {
                let every = every.num_milliseconds();
                DateTime::from_timestamp_millis((after.timestamp_millis().div_euclid(every) + 1).checked_mul(every)?)
            }
        }
    }

    /// Returns up to `most` ticks after `after`, from the earliest to the latest.
    pub fn next_ticks(&self, after: DateTime<Utc>, most: usize) -> Vec<DateTime<Utc>> {
        std::iter::successors(self.next(after), |tick| self.next(*tick)).take(most).collect()
    }

    /// Returns the last `most` ticks between `from` and `until`, in ascending order, or all ticks if there are fewer. `from` must be a
    /// tick. The search starts close to `until` and doubles its range until it has enough ticks, so it does not compute all ticks since
    /// `from`.
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

    /// Returns the ticks to handle at time `now`, with the action for these ticks. Returns `None` if the schedule is not due. `tick` is
    /// the earliest tick that has not been handled yet, and `skip` is the tick that an operator has decided to skip. If both are equal,
    /// only this tick is returned, and the database records it as skipped.
    pub fn due(
        &self,
        missed: Missed,
        grace: Duration,
        tick: DateTime<Utc>,
        skip: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> Option<DueTicks> {
        let in_time = now.checked_sub_signed(TimeDelta::from_std(grace).ok()?)?;
        let one = |action, next| DueTicks { ticks: vec![tick], action, next };
        let several = |most| DueTicks { ticks: self.last_ticks(tick, now, most), action: "enqueue", next: self.next(now) };
        Some(match missed {
            _ if tick > now => return None,
            _ if skip == Some(tick) || tick >= in_time => one("enqueue", self.next(tick)),
            Missed::Coalesce => several(1),
            Missed::Skip => one("miss", self.next(in_time)),
            Missed::CatchUp(most) => several(usize::from(most.max(1))),
        })
    }
}

/// Minimum interval of a schedule.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum interval of a schedule.
const MAX_INTERVAL: Duration = Duration::from_hours(365 * 24);

impl Missed {
    /// Returns the SQL name of the policy: `coalesce`, `skip`, or `catch_up` with the number of ticks, for example `catch_up(3)`.
    pub fn to_sql(self) -> String {
        match self {
            Self::Coalesce => "coalesce".to_owned(),
            Self::Skip => "skip".to_owned(),
            Self::CatchUp(most) => format!("catch_up({})", most.clamp(1, 999)),
        }
    }

    /// Parses the SQL name of the policy.
    pub fn from_sql(word: &str) -> Option<Self> {
        match word {
            "coalesce" => Some(Self::Coalesce),
            "skip" => Some(Self::Skip),
            _ => word.strip_prefix("catch_up(")?.strip_suffix(')')?.parse().ok().filter(|most| (1..1000).contains(most)).map(Self::CatchUp),
        }
    }
}

impl Overlap {
    /// Returns the SQL name of the policy.
    pub fn to_sql(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Allow => "allow",
            Self::Queue => "queue",
        }
    }

    /// Parses the SQL name of the policy.
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
        assert_eq!(in_time, Some(DueTicks { ticks: vec![tick], action: "enqueue", next: Some(at("2026-03-01T11:00:00Z")) }));
        let (last, next) = (at("2026-03-04T10:00:00Z"), Some(at("2026-03-04T11:00:00Z")));
        let due = |missed| hourly().due(missed, GRACE, tick, None, now);
        assert_eq!(due(Missed::Coalesce), Some(DueTicks { ticks: vec![last], action: "enqueue", next }));
        assert_eq!(due(Missed::Skip), Some(DueTicks { ticks: vec![tick], action: "miss", next }));
        let three = vec![last - TimeDelta::hours(2), last - TimeDelta::hours(1), last];
        assert_eq!(due(Missed::CatchUp(3)), Some(DueTicks { ticks: three, action: "enqueue", next }));
        assert_eq!(due(Missed::CatchUp(900)).map(|due| due.ticks.len()), Some(73));
        assert_eq!(hourly().due(Missed::Coalesce, GRACE, next.unwrap_or(now), None, now), None, "not before its time");
    }

    #[test]
    fn ticks_are_skipped_up_to_the_grace() {
        let minutely = Timing::new(Some("* * * * *"), None, "UTC").unwrap_or_else(|error| panic!("{error}"));
        let due = minutely.due(Missed::Skip, GRACE, at("2026-03-01T10:00:00Z"), None, at("2026-03-01T10:10:30Z"));
        assert_eq!(due.and_then(|due| due.next), Some(at("2026-03-01T10:10:00Z")));
    }

    #[test]
    fn only_the_tick_to_skip_is_skipped() {
        let tick = at("2026-03-01T10:00:00Z");
        let late = tick + TimeDelta::days(3);
        let due = |skip| hourly().due(Missed::Coalesce, GRACE, tick, Some(skip), late).map(|due| due.ticks);
        assert_eq!(due(tick), Some(vec![tick]), "the tick to skip is handled alone");
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
    fn sql_names_round_trip() {
        for missed in [Missed::Coalesce, Missed::Skip, Missed::CatchUp(1), Missed::CatchUp(999)] {
            assert_eq!(Missed::from_sql(&missed.to_sql()), Some(missed));
        }
        assert_eq!([Missed::from_sql("catch_up(0)"), Missed::from_sql("catch_up(1000)"), Missed::from_sql("catch_up")], [None; 3]);
        assert_eq!(Overlap::from_sql(Overlap::Queue.to_sql()), Some(Overlap::Queue));
    }
}
