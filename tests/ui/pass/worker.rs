//! A worker can register the job types of this crate. `main!` takes functions that create the state of their handlers.

use queue_core::{Context, Handler, JobResult, job, sqlx::PgPool};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};

struct Mailer;

#[job(state(Mailer))]
#[derive(Serialize, Deserialize)]
struct SendEmail;

impl Handler for SendEmail {
    async fn run(self, cx: &Context) -> JobResult {
        let _: &Mailer = cx.state();
        let _ = cx.claimed_at() - cx.enqueued_at();
        Ok(())
    }
}

async fn mailer(_: PgPool) -> Result<Mailer, std::io::Error> {
    Ok(Mailer)
}

mod worker {
    use super::mailer;

    queue_worker::main!(std, queue_core::operate; state = mailer; state = async |pool: super::PgPool| pool.acquire().await.map(|_| 7));

    pub(super) fn linked() -> fn() -> std::process::ExitCode {
        main
    }
}

fn main() {
    let (_, _) = (worker::linked(), |worker: Worker| worker.register::<SendEmail>());
}
