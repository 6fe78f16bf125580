//! A job type local to a function is registered even if the function is never called.

use queue_core::{Context, Handler, JobResult, JobType, job, registry::Registry};
use serde::{Deserialize, Serialize};

fn main() {
    #[job(queue = "local")]
    #[derive(Serialize, Deserialize)]
    struct Local {
        n: u32,
    }

    impl Handler for Local {
        async fn run(self, _: &Context) -> JobResult {
            assert_eq!(self.n, 1);
            Ok(())
        }
    }

    assert_eq!(Local::OPTIONS.queue, "local");
    let registry = Registry::linked().unwrap();
    assert!(registry.get("local").is_some());
    assert!(registry.get("never_called").is_some());
}

#[allow(dead_code)]
fn never_called() {
    let before = 1;

    #[job]
    #[derive(Serialize, Deserialize)]
    struct NeverCalled;

    impl Handler for NeverCalled {
        async fn run(self, _: &Context) -> JobResult {
            Ok(())
        }
    }

    let _after = before;
}
