//! Code shared by the examples. Each file in `examples/` shows one feature and asserts the result. `src/bin/demo` is a complete program.

use std::time::Duration;

use queue_core::{JobId, JobRef, operate::JobRecord};
use queue_worker::Worker;
use sqlx::PgPool;

/// Runs a worker until `jobs` are completed, dead or cancelled. A real program runs a worker until a signal arrives:
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
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    #[test]
    fn the_readme_shows_the_program_hello() {
        let (readme, program) = (include_str!("../../README.md"), include_str!("bin/hello.rs"));
        let (_header, program) = program.split_once("\n\n").expect("a header, an empty line, the program");
        assert!(readme.contains(program), "the first program in README.md must be examples/src/bin/hello.rs, word for word");
    }

    /// Chapters whose code is that of the examples.
    const CHAPTERS: [&str; 7] = ["GETTING_STARTED", "RETRIES", "SCHEDULING", "RESULTS", "ORDERING", "UNIQUENESS", "WORKFLOWS"];

    /// Returns the texts of all programs below `folder`.
    fn programs(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder of the workspace").map(|entry| entry.expect("an entry").path());
        let texts = |path: PathBuf| match path.extension() {
            _ if path.is_dir() => programs(&path),
            Some(extension) if extension == "rs" => vec![fs::read_to_string(path).expect("a program")],
            _ => Vec::new(),
        };
        entries.flat_map(texts).collect()
    }

    #[test]
    fn the_chapters_of_the_guide_show_the_code_of_the_examples() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let programs = programs(folder);
        for chapter in CHAPTERS {
            let text = fs::read_to_string(folder.join(format!("../docs/{chapter}.md"))).expect("a chapter");
            let mut shown = 0;
            for (_, part) in text.match_indices("```rust,ignore\n").map(|(at, fence)| text.split_at(at + fence.len())) {
                let code = part.split_once("```").expect("the code ends").0;
                assert!(programs.iter().any(|program| program.contains(code)), "{chapter}: no example has this, word for word:\n{code}");
                shown += 1;
            }
            assert!(shown > 0, "{chapter} shows no code");
        }
    }
}
