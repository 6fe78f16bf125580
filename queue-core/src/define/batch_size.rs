//! Batch sizes by attempt. A job in a failed batch is retried in smaller batches and finally runs alone.

/// Returns the maximum batch size for attempt number `attempt` (counted from 1) of a type with `#[job(batch = most)]`. `max_attempts` is
/// the maximum number of attempts. `crashes` is the number of attempts that ended with a crash of the process.
///
/// A failed batch is retried in batches that are a quarter as large. If `max_attempts` is low, the size decreases by a larger factor,
/// which is the same for all attempts. A job runs alone in its last attempt and in every attempt after a crash of the process. A job
/// therefore becomes a dead letter only if it fails while it runs alone or if the handler fails this job explicitly.
///
/// ```
/// # use queue_core::batch::most_together;
/// let sizes = |max_attempts| [1, 2, 3, 4, 5].map(|attempt| most_together(500, attempt, max_attempts, 0));
/// assert_eq!(sizes(20), [500, 125, 31, 7, 1]);
/// assert_eq!(sizes(5), [500, 106, 23, 5, 1]);
/// assert_eq!(sizes(3), [500, 23, 1, 1, 1]);
/// assert_eq!(most_together(500, 1, 20, 1), 1); // its process has ended during an attempt
/// ```
pub fn most_together(most: usize, attempt: u32, max_attempts: u32, crashes: u32) -> usize {
    if crashes > 0 || attempt >= max_attempts {
        return 1;
    }
    let passed = attempt.saturating_sub(1);
    let quarters = most.checked_shr(passed.saturating_mul(2)).unwrap_or(0);
    let left = f64::from(max_attempts - attempt) / f64::from(max_attempts - 1);
    let steps = (most as f64).powf(left).ceil() as usize;
    quarters.min(steps).clamp(1, most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of handler calls for `most` jobs, of which one always fails. The calls are counted until that job is a dead
    /// letter. All batches have the maximum size.
    fn calls(most: usize, max_attempts: u32) -> usize {
        let (mut calls, mut failed) = (0, most);
        for attempt in 1..=max_attempts {
            let together = most_together(most, attempt, max_attempts, 0);
            calls += failed.div_ceil(together);
            failed = failed.min(together);
        }
        assert_eq!(failed, 1, "the bad job runs alone in the end");
        calls
    }

    #[test]
    fn one_bad_job_among_500_takes_25_calls_and_one_for_each_further_attempt() {
        assert_eq!([4, 5, 6, 7, 8].map(|max_attempts| calls(500, max_attempts)), [25, 21, 23, 24, 25]);
        assert_eq!((calls(500, 20), calls(500, 3), calls(500, 2)), (37, 46, 501));
        // From the fifth attempt on, each job runs alone. The six other jobs of the bad job's last batch complete in the fifth attempt.
        // Each further attempt is a single call, for the bad job.
        for max_attempts in 8..=100 {
            let until_alone = (1..=5).map(|attempt| most_together(500, attempt, max_attempts, 0));
            assert_eq!(until_alone.collect::<Vec<_>>(), [500, 125, 31, 7, 1]);
            assert_eq!(calls(500, max_attempts), 22 + (max_attempts as usize - 5));
        }
    }

    #[test]
    fn the_first_attempt_is_whole_and_the_last_alone_and_none_larger_than_the_one_before() {
        for max_attempts in 2..40 {
            for most in [2, 3, 7, 64, 500, 10_000] {
                let sizes: Vec<usize> = (1..=max_attempts + 3).map(|attempt| most_together(most, attempt, max_attempts, 0)).collect();
                assert!(sizes[0] == most && sizes.is_sorted_by(|a, b| a >= b), "{most} {max_attempts}: {sizes:?}");
                assert!(sizes.iter().zip(0..).all(|(size, passed)| *size <= (most >> (2 * passed).min(60)).max(1)));
                assert!(sizes[max_attempts as usize - 1..].iter().all(|size| *size == 1));
            }
        }
        assert_eq!((most_together(500, 0, 20, 0), most_together(500, 1, 1, 0), most_together(500, u32::MAX, u32::MAX, 0)), (500, 1, 1));
        assert_eq!((most_together(500, 900, 1000, 0), most_together(0, 1, 2, 0)), (1, 1));
    }
}
