//! The schedules that job types have by their `#[job(cron = ..)]`, collected at link time.

use super::spec::Schedule;
use crate::{define::JobType, seal};

/// The schedule of one job type, if it has one.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct Declared {
    job_type: &'static str,
    schedule: fn() -> Option<Schedule>,
}

inventory::collect!(Declared);

impl Declared {
    /// Of `T`.
    pub const fn of<T: JobType>() -> Self {
        Self { job_type: T::OPTIONS.name, schedule: schedule::<T> }
    }

    /// Those of all types linked into this binary.
    pub fn linked() -> impl Iterator<Item = Self> {
        inventory::iter::<Self>.into_iter().copied()
    }

    /// It has the name of its type.
    pub fn named(self) -> Option<(String, Schedule)> {
        Some((self.job_type.to_owned(), (self.schedule)()?))
    }
}

fn schedule<T: JobType>() -> Option<Schedule> {
    let options = T::OPTIONS;
    if options.seal.is_some_and(|keyring| !seal::is_known(keyring)) {
        // Such a worker leaves the type to others, and this with it.
        return None;
    }
    let schedule = match (options.cron, options.every) {
        (Some(expression), _) => Schedule::cron(expression),
        (None, Some(interval)) => Schedule::every(interval),
        (None, None) => return None,
    };
    let schedule = schedule.job(&T::scheduled()?);
    Some(match options.tz {
        Some(zone) => schedule.tz(zone),
        None => schedule,
    })
}
