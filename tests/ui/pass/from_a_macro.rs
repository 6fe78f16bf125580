//! `macro_rules!` can generate every part of a job type, although its fragments arrive in groups with invisible delimiters.

use std::time::Duration;

use queue_core::{Context, Handler, JobResult, JobType, job, options::Backoff, registry::Registry};
use serde::{Deserialize, Serialize};

macro_rules! jobs {
    ($vis:vis $name:ident($field:ty) -> $output:ty: $stored:literal, $alias:expr, $attempts:literal, $wait:expr, $share:expr, $state:ty, $retain:expr) => {
        #[job(
            name = $stored,
            aliases = [$alias],
            max_attempts = $attempts,
            backoff = fixed($wait, jitter = $share),
            timeout = $wait,
            output = $output,
            state($state),
            retain = $retain,
        )]
        #[derive(Serialize, Deserialize)]
        $vis struct $name($field);

        impl Handler for $name {
            async fn run(self, _: &Context) -> JobResult<$output> {
                Ok(self.0)
            }
        }
    };
}

jobs!(pub(crate) Echo(u8) -> u8: "echo", "parrot", 3, "1s", 0.5, Vec<u8>, "none");
jobs!(Repeat(Vec<u8>) -> Vec<u8>: "repeat", "again", 2, "2s", 1, String, "default");

fn main() {
    assert_eq!(Echo::OPTIONS.max_attempts, 3);
    assert_eq!(Echo::OPTIONS.backoff, Backoff::fixed(Duration::from_secs(1)).jitter(0.5));
    assert_eq!(Repeat::OPTIONS.timeout, Some(Duration::from_secs(2)));
    let registry = Registry::linked().unwrap();
    let names: Vec<_> = registry.names().map(|(name, _)| name).collect();
    assert_eq!(names, ["again", "echo", "parrot", "repeat"]);
}
