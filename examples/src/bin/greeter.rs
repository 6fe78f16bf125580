//! Worker used by `docs/ANY_LANGUAGE.md`. Start it with `cargo run -p examples --bin greeter -- run --migrate`.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(name = "greet", output = String)]
#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Handler for Greet {
    async fn run(self, _: &Context) -> JobResult<String> {
        Ok(format!("hello, {}", self.name))
    }
}

queue_worker::main!();
