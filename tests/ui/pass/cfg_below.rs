//! A struct removed by `cfg` removes its job type, wherever the `cfg` is.

use queue_core::{JobType, Registry, job};
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
