//! Each kind of backoff can be used with and without options.

use std::time::Duration;

use queue_core::{JobType, job, options::Backoff};
use serde::{Deserialize, Serialize};

#[job(send_only, backoff = fixed("250ms"))]
#[derive(Serialize, Deserialize)]
struct Fixed;

#[job(send_only, backoff = linear("2h", jitter = 0.25))]
#[derive(Serialize, Deserialize)]
struct Linear;

#[job(send_only, backoff = exponential("1m", jitter = 0, max = "30d",))]
#[derive(Serialize, Deserialize)]
struct Exponential;

#[job(send_only, backoff = fixed("1d2h3m4s5ms", max = "1d2h3m4s5ms", jitter = 1))]
#[derive(Serialize, Deserialize)]
struct Compound;

fn main() {
    assert_eq!(Fixed::OPTIONS.backoff, Backoff::fixed(Duration::from_millis(250)));
    assert_eq!(Linear::OPTIONS.backoff, Backoff::linear(Duration::from_secs(7200)).jitter(0.25));
    assert_eq!(Exponential::OPTIONS.backoff, Backoff::exponential(Duration::from_secs(60)).max(Duration::from_secs(2_592_000)));
    let compound = Duration::from_millis(93_784_005);
    assert_eq!(Compound::OPTIONS.backoff, Backoff::fixed(compound).max(compound).jitter(1.0));
}
