//! The expansion compiles in a crate that forbids unsafe code and denies most rustc lints.

#![forbid(unsafe_code)]
#![deny(missing_docs, missing_debug_implementations, unreachable_pub, unused, unused_qualifications, nonstandard_style, warnings)]
#![deny(elided_lifetimes_in_paths, single_use_lifetimes, trivial_casts, variant_size_differences, let_underscore_drop)]

use queue_core::{Context, Handler, JobResult, JobType, Priority, handler, job, registry::Registry};
use serde::{Deserialize, Serialize};

/// Job that does nothing.
#[job(priority = Priority::BACKFILL, max_attempts = 3, backoff = fixed("1s", jitter = 1), timeout = "10s", state(u8))]
#[derive(Debug, Serialize, Deserialize)]
struct Strict {
    n: u32,
}

impl Handler for Strict {
    async fn run(self, _: &Context) -> JobResult {
        assert_eq!(self.n, 1);
        Ok(())
    }
}

/// Job whose handler is a function.
#[job(send_only)]
#[derive(Debug, Serialize, Deserialize)]
pub struct Letter;

/// Handler that does nothing.
#[handler]
pub async fn send_letter(_: Letter, _: &Context) -> JobResult {
    Ok(())
}

fn main() {
    assert_eq!(Strict::OPTIONS.priority, 30);
    let registry = Registry::linked().unwrap();
    assert!(registry.get("strict").is_some() && registry.get("letter").is_some());
}
