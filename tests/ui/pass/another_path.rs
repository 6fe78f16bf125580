//! The option `crate` sets the path of `queue_core`. The expansion then does not use the path `::queue_core`.

mod vendor {
    pub mod deep {
        pub use ::queue_core as queue;
    }
}

use vendor::deep::queue::{
    Context, Handler, JobResult, JobType, job,
    options::{Backoff, Retain},
    registry::Registry,
};

/// Shadows the crate name, which an expansion without a leading `::` would use.
mod queue_core {}

struct Mailer;

#[job(crate = vendor::deep::queue, backoff = linear("1s"), timeout = "1s", retain = "default", state(Mailer))]
#[derive(serde::Serialize, serde::Deserialize)]
struct Renamed;

impl Handler for Renamed {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

mod inner {
    #[crate::vendor::deep::queue::job(crate = crate::vendor::deep::queue, send_only)]
    #[derive(serde::Serialize, serde::Deserialize)]
    pub(crate) struct Inner;
}

fn main() {
    assert_eq!(Renamed::OPTIONS.retain, Retain::Default);
    assert_eq!(Renamed::OPTIONS.backoff, Backoff::linear(std::time::Duration::from_secs(1)));
    assert_eq!(inner::Inner::OPTIONS.name, "inner");
    assert!(Registry::linked().unwrap().get("renamed").is_some());
}
