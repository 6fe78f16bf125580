//! Worker binary with several job types and a middleware. With the command `top`, one of its threads panics after four seconds. A test
//! then checks that the terminal is restored.

use std::{process::ExitCode, thread, time::Duration};

use queue_core::{
    Context, Failure, Handler, JobResult, Keyring, Secret, job,
    middleware::{AttemptOutput, Middleware, Next, async_trait},
    use_keyring,
};
use serde::{Deserialize, Serialize};
use tests::{Own, Stages, Steps};

/// Middleware that logs each attempt.
struct Loud;

#[async_trait]
impl Middleware for Loud {
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        eprintln!("middleware around {}", cx.job_type());
        next.run().await
    }
}

/// Job type whose payload only this binary can decrypt.
#[job(name = "tried_sealed", seal = "tried")]
#[derive(Serialize, Deserialize)]
struct Sealed {
    text: String,
}

impl Handler for Sealed {
    async fn run(self, _: &Context) -> JobResult {
        Err(format!("opened, and {} bytes long", self.text.len()).into())
    }
}

fn main() -> ExitCode {
    if use_keyring("tried", Keyring::new("first", Secret::new([7; 32]))).is_err() {
        return ExitCode::FAILURE;
    }
    if std::env::args().any(|argument| argument == "top") {
        thread::spawn(|| {
            thread::sleep(Duration::from_secs(4));
            panic!("it is time to panic");
        });
    }
    queue_worker::cli::main_with(async |worker| {
        Ok(worker.register::<Own>().register::<Sealed>().register::<Steps>().register::<Stages>().middleware(Loud))
    })
}
