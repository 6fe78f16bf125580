//! A `send_only` type needs no handler, and no worker registers it.

use queue_core::{JobType, job, registry::Registry};
use serde::{Deserialize, Serialize};

#[job(send_only, queue = "elsewhere")]
#[derive(Serialize, Deserialize)]
struct Elsewhere {
    id: u64,
}

fn main() {
    let job = Elsewhere { id: 7 };
    assert_eq!(serde_json::to_string(&job).unwrap(), r#"{"id":7}"#);
    assert_eq!(Elsewhere::OPTIONS.queue, "elsewhere");
    assert!(Registry::linked().unwrap().is_empty());
}
