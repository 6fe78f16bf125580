//! Transactional jobs of which nothing could be written in this process: passed over for a while, so that others of their lane go on.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use queue_core::JobId;

/// After the first time; after each further one twice as long, up to the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(1);

/// The jobs, how often nothing came of them, and until when each is passed over.
#[derive(Default)]
pub(super) struct Passed(HashMap<JobId, (u32, Instant)>);

impl Passed {
    /// Nothing came of this job once more. Returns for how long it is passed over.
    pub(super) fn note(&mut self, job: JobId, now: Instant) -> Duration {
        // What somebody else has ended since is not asked for again.
        self.0.retain(|_, (_, until)| now < *until + 2 * LONGEST);
        let (times, until) = self.0.entry(job).or_insert((0, now));
        let wait = LONGEST.min(FIRST * 2_u32.pow((*times).min(6)));
        (*times, *until) = (times.saturating_add(1), now + wait);
        wait
    }

    /// Something came of it.
    pub(super) fn forget(&mut self, job: JobId) {
        self.0.remove(&job);
    }

    /// Those that are passed over, and when the next of them may be tried again.
    pub(super) fn at(&self, now: Instant) -> (Vec<JobId>, Option<Duration>) {
        let passed = self.0.iter().filter(|(_, (_, until))| now < *until);
        let (jobs, waits): (Vec<JobId>, Vec<Duration>) = passed.map(|(job, (_, until))| (*job, *until - now)).unzip();
        (jobs, waits.into_iter().min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_passed_over_for_longer_each_time_and_forgotten_once_something_came_of_it() {
        let (mut passed, mut now, job) = (Passed::default(), Instant::now(), "7".parse().unwrap());
        for wanted in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(passed.note(job, now), Duration::from_secs(wanted));
            assert_eq!(passed.at(now), (vec![job], Some(Duration::from_secs(wanted))));
            now += Duration::from_secs(wanted);
            assert_eq!(passed.at(now), (vec![], None), "its time has come");
        }
        passed.forget(job);
        assert_eq!(passed.note(job, now), FIRST);
        let other = "8".parse().unwrap();
        passed.note(other, now + Duration::from_mins(10));
        assert_eq!(passed.0.len(), 1, "what was not tried for long is forgotten");
    }
}
