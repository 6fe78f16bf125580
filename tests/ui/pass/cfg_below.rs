//! A `cfg` that removes a struct also removes its job type, whether the `cfg` is above or below the job attribute.

use queue_core::{JobType, job, registry::Registry};
use serde::{Deserialize, Serialize};

#[job]
#[cfg(any())]
#[derive(Serialize, Deserialize)]
struct Never;

#[cfg(any())]
#[job]
#[derive(Serialize, Deserialize)]
struct NeverEither;

#[cfg_attr(all(), job(send_only))]
#[cfg(all())]
#[derive(Serialize, Deserialize)]
struct Always;

fn main() {
    assert_eq!(Always::OPTIONS.name, "always");
    assert!(Registry::linked().unwrap().is_empty());
}
