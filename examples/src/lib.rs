//! Code shared by the examples. Each file in `examples/` shows one feature and asserts the result. `src/bin/demo` is a complete program.

use std::time::Duration;

use queue_core::{JobId, JobRef, operate::JobRecord};
use queue_worker::Worker;
use sqlx::PgPool;

/// Runs a worker until all `jobs` have reached a final state. A real program runs a worker until a signal arrives:
/// `worker.run(shutdown_signal())`.
///
/// # Errors
/// Returns an error if the worker or a database query fails.
pub async fn run_until_finished(worker: Worker, pool: &PgPool, jobs: &[JobId]) -> anyhow::Result<()> {
    let mut waited = Ok(());
    worker.run(async { waited = wait_until_over(pool, jobs).await }).await?;
    Ok(waited?)
}

async fn wait_until_over(pool: &PgPool, jobs: &[JobId]) -> sqlx::Result<()> {
    let statement =
        "select count(*) from queue.jobs where id = any ($1) and state in ('blocked', 'scheduled', 'parked', 'ready', 'running')";
    while sqlx::query_scalar::<_, i64>(statement).bind(jobs).fetch_one(pool).await? > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Loads the current record of a job.
///
/// # Errors
/// Returns an error if the query fails or the job does not exist.
pub async fn find_job(pool: &PgPool, job: JobId) -> anyhow::Result<JobRecord> {
    Ok(JobRef::from_id(job).find(pool).await?)
}

#[cfg(test)]
mod guide;

#[cfg(test)]
mod tests {
    #[test]
    fn the_readme_shows_the_program_hello() {
        let (readme, program) = (include_str!("../../README.md"), include_str!("bin/hello.rs"));
        let (_header, program) = program.split_once("\n\n").expect("a header, an empty line, the program");
        assert!(readme.contains(program), "the first program in README.md must be examples/src/bin/hello.rs, word for word");
    }
}
