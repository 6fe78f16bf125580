//! A payload can have no fields, or unnamed fields.

use queue_core::{Context, Handler, JobResult, JobType, job, registry::Registry};
use serde::{Deserialize, Serialize};

#[job(queue = "clock")]
#[derive(Serialize, Deserialize)]
struct Tick;

impl Handler for Tick {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

#[job]
#[derive(Serialize, Deserialize)]
pub struct Resize(pub u32, pub(crate) u32)
where
    String: Clone;

impl Handler for Resize {
    async fn run(self, _: &Context) -> JobResult {
        assert!(self.0 > self.1);
        Ok(())
    }
}

#[job]
#[derive(Serialize, Deserialize)]
struct Empty {}

impl Handler for Empty {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {
    assert_eq!(Tick::OPTIONS.queue, "clock");
    assert_eq!(Resize::OPTIONS.name, "resize");
    assert_eq!(Registry::linked().unwrap().types().count(), 3);
}
