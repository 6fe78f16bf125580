//! Fixed-size, mergeable histograms of durations, with quantiles.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use serde::{Serialize, Serializer};

/// Histogram of durations with 24 buckets.
///
/// The first bucket counts durations below a millisecond, and the last bucket counts durations of a day or longer. [`Histogram::BOUNDS_MS`]
/// lists the bounds between the buckets. The JSON form has the count, quantiles in milliseconds, and the buckets.
///
/// ```
/// use queue_core::operate::Histogram;
/// use std::time::Duration;
///
/// let mut ran = Histogram::default();
/// for ms in 0..100 {
///     ran.record(Duration::from_millis(ms));
/// }
/// let p95 = ran.quantile(0.95).expect("it counts something");
/// assert!(p95 > Duration::from_millis(50) && p95 < Duration::from_millis(100));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Histogram, value_type = HistogramJson))]
pub struct Histogram([u64; BUCKETS]);

const BUCKETS: usize = 24;

/// Number of decimal digits per bucket in the packed form that tables store.
const DIGITS: usize = 16;

impl Histogram {
    /// Exclusive upper bounds of the buckets, in milliseconds. A duration equal to a bound counts in the next bucket. The last bucket is
    /// unbounded.
    pub const BOUNDS_MS: [u64; BUCKETS - 1] = [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000,
        10_800_000, 28_800_000, 86_400_000,
    ];

    /// Counts one duration.
    pub fn record(&mut self, duration: Duration) {
        // 64-bit arithmetic is faster than `as_millis`, which computes with 128 bits.
        let ms = duration.as_secs().saturating_mul(1000).saturating_add(u64::from(duration.subsec_millis()));
        self.0[Self::BOUNDS_MS.partition_point(|bound| *bound <= ms)] += 1;
    }

    /// Returns the number of durations counted.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the count of each bucket, shortest durations first.
    pub fn buckets(&self) -> &[u64; BUCKETS] {
        &self.0
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(here, there)| *here += there);
    }

    /// Returns the quantile for `share`, from 0 to 1. A share of 0.5 yields the median. Returns `None` if the histogram is empty. The
    /// result lies between the bounds of the correct bucket. Within a bucket, durations are assumed to be evenly distributed on a
    /// logarithmic scale. The result for the last bucket is one day.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let rank = share.clamp(0.0, 1.0) * self.count() as f64;
        let mut before = 0;
        for (place, jobs) in self.0.iter().enumerate().filter(|(_, jobs)| **jobs > 0) {
            if (before + jobs) as f64 >= rank {
                let part = ((rank - before as f64) / *jobs as f64).clamp(0.0, 1.0);
                return Some(interpolate(place, part));
            }
            before += jobs;
        }
        None
    }

    /// Returns the histogram in the packed form that tables store: one decimal number, with the first bucket in the lowest digits.
    #[doc(hidden)]
    pub fn packed(&self) -> String {
        let highest = self.0.iter().rposition(|jobs| *jobs > 0).unwrap_or(0);
        let mut digits = self.0[highest].to_string();
        for jobs in self.0[..highest].iter().rev() {
            // Writing to a `String` never fails.
            let _ = write!(digits, "{jobs:0DIGITS$}");
        }
        digits
    }

    /// Parses a number returned by [`packed`](Self::packed). Returns `None` if the number is invalid.
    #[doc(hidden)]
    pub fn unpacked(digits: &str) -> Option<Self> {
        let parts = digits.as_bytes().rchunks(DIGITS).map(|part| std::str::from_utf8(part).ok()?.parse().ok());
        let mut histogram = Self::default();
        for (place, jobs) in parts.enumerate() {
            *histogram.0.get_mut(place)? = jobs?;
        }
        Some(histogram)
    }
}

/// Returns the duration at the fraction `part` (from 0 to 1) of the bucket with index `place`.
fn interpolate(place: usize, part: f64) -> Duration {
    let low = place.checked_sub(1).map_or(0, |before| Histogram::BOUNDS_MS[before]) as f64;
    let ms = match Histogram::BOUNDS_MS.get(place) {
        None => low,
        Some(high) if low == 0.0 => *high as f64 * part,
        Some(high) => low * (*high as f64 / low).powf(part),
    };
    Duration::from_secs_f64(ms / 1000.0)
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = Self::BOUNDS_MS.into_iter().chain([u64::MAX]);
        f.debug_map().entries(ends.zip(self.0).filter(|(_, jobs)| *jobs > 0)).finish()
    }
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ms = |share| self.quantile(share).map(|duration| duration.as_secs_f64() * 1000.0);
        let json = HistogramJson { count: self.count(), p50_ms: ms(0.5), p95_ms: ms(0.95), p99_ms: ms(0.99), buckets: self.0 };
        json.serialize(serializer)
    }
}

/// JSON form of a histogram.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
struct HistogramJson {
    /// Number of durations in all buckets.
    count: u64,
    /// Median in milliseconds; null if the histogram is empty.
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// Number of durations per bucket.
    buckets: [u64; BUCKETS],
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `count` deterministic pseudo-random durations, from microseconds to more than a day.
    fn durations(count: u64) -> Vec<Duration> {
        let dice = |nth: u64| (nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64;
        (0..count).map(|nth| Duration::from_secs_f64(10_f64.powf(dice(nth) * 9.5 - 4.5))).collect()
    }

    fn histogram(durations: &[Duration]) -> Histogram {
        let mut histogram = Histogram::default();
        for duration in durations {
            histogram.record(*duration);
        }
        histogram
    }

    #[test]
    fn quantiles_are_exact_to_the_bucket() {
        let mut all = durations(10_000);
        let histogram = histogram(&all);
        all.sort_unstable();
        for share in [0.001, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99] {
            let exact = all[((share * 10_000.0) as usize).clamp(1, 10_000) - 1];
            let place = Histogram::BOUNDS_MS.partition_point(|bound| u128::from(*bound) <= exact.as_millis());
            let low = Duration::from_millis(if place == 0 { 0 } else { Histogram::BOUNDS_MS[place - 1] });
            let high = Duration::from_millis(*Histogram::BOUNDS_MS.get(place).unwrap_or(&86_400_000));
            let quantile = histogram.quantile(share).unwrap();
            assert!(low <= quantile && quantile <= high, "{share}: {quantile:?} for {exact:?}");
        }
        assert_eq!(histogram.quantile(2.0), histogram.quantile(1.0), "shares are clamped to 1");
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn durations_equal_to_a_bound_count_in_the_next_bucket() {
        for (place, bound) in Histogram::BOUNDS_MS.into_iter().enumerate() {
            let at = histogram(&[Duration::from_millis(bound)]);
            let before = histogram(&[Duration::from_nanos(bound * 1_000_000 - 1)]);
            assert_eq!((at.buckets()[place + 1], before.buckets()[place]), (1, 1), "{bound}");
        }
        let longest = histogram(&[Duration::MAX]);
        assert_eq!((longest.buckets()[23], longest.quantile(0.5)), (1, Some(Duration::from_hours(24))));
    }

    #[test]
    fn histograms_are_added_and_packed_without_loss() {
        let all = durations(1000);
        let (mut one, other) = (histogram(&all[..400]), histogram(&all[400..]));
        one.add(&other);
        assert_eq!((one, one.count()), (histogram(&all), 1000));
        let full = Histogram(std::array::from_fn(|place| if place % 2 == 0 { 9_999_999_999_999_999 } else { 0 }));
        for known in [one, full, Histogram::default(), histogram(&[Duration::MAX])] {
            assert_eq!(Histogram::unpacked(&known.packed()), Some(known));
        }
        for none in ["-1", "1.5", "x", &"1".repeat(24 * 16 + 1)] {
            assert_eq!(Histogram::unpacked(none), None, "{none}");
        }
    }
}
