//! Schedules declared by job types with `#[job(cron = ..)]` or `#[job(every = ..)]`, collected at link time.

use super::spec::Schedule;
use crate::{define::JobType, seal};

/// Entry for the schedule that a job type declares, collected at link time.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct DeclaredSchedule {
    job_type: &'static str,
    schedule: fn() -> Option<Schedule>,
}

inventory::collect!(DeclaredSchedule);

impl DeclaredSchedule {
    /// Creates the entry for the schedule of the job type `T`.
    pub const fn of<T: JobType>() -> Self {
        Self { job_type: T::OPTIONS.name, schedule: schedule::<T> }
    }

    /// Returns the schedule entries of all job types linked into this binary.
    pub fn linked() -> impl Iterator<Item = Self> {
        inventory::iter::<Self>.into_iter().copied()
    }

    /// Returns the name of the job type.
    pub fn job_type(self) -> &'static str {
        self.job_type
    }

    /// Returns the schedule, named after the job type. Returns `None` if the type declares no schedule, or if the type's keyring is not
    /// set.
    pub fn named(self) -> Option<(String, Schedule)> {
        Some((self.job_type.to_owned(), (self.schedule)()?))
    }
}

fn schedule<T: JobType>() -> Option<Schedule> {
    let options = T::OPTIONS;
    if options.seal.is_some_and(|keyring| !seal::has_keyring(keyring)) {
        // A worker without the keyring leaves the type and its schedule to other workers.
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
