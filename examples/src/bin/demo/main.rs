//! `cargo demo [FOLDER]` finds duplicate files. For each file, the transaction that inserts the file's row also enqueues a job.
//!
//! `find_duplicates` below runs the steps of the program. `hash` contains the job and its handler, and `table` contains the SQL. `walk`
//! searches for files, and `report` prints the output.

mod hash;
mod report;
mod table;
mod walk;

use std::{
    env,
    ffi::OsString,
    num::NonZero,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::Ordering::Relaxed,
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use indicatif::ProgressBar;
use queue_core::Store;
use queue_worker::{Database, Worker, shutdown_signal};
use sqlx::PgPool;

use crate::{
    hash::{Folder, HashFile, Stored},
    table::{Counts, Run},
};

const USAGE: &str = "\
Finds duplicate files in FOLDER, by default in this checkout.

Usage: cargo demo [FOLDER]

The jobs are kept in the PostgreSQL that DATABASE_URL names, else in an embedded one, which is started for the demo.
The exit code is 0 when every job is over, 1 after an error, 2 when FOLDER is no folder, 130 after Ctrl-C.";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let folder = match folder(&arguments) {
        Ok(Some(folder)) => folder,
        Ok(None) => {
            report::line(USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(find_duplicates(&folder));
    // A read that hangs, for example on a network drive, must not block the exit.
    runtime.shutdown_background();
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}"); // errors of the queue contain their causes
        ExitCode::FAILURE
    })
}

/// Parses the arguments. Returns the requested folder, or `None` if help was requested.
fn folder(arguments: &[OsString]) -> Result<Option<PathBuf>, String> {
    let asked = match arguments {
        [] => {
            let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            if checkout.is_dir() { checkout } else { PathBuf::from(".") }
        }
        [one] if one == "--help" || one == "-h" => return Ok(None),
        [one] => PathBuf::from(one),
        _ => return Err(format!("one folder at most\n\n{USAGE}")),
    };
    let shown = walk::text(&asked);
    let folder = asked.canonicalize().map_err(|error| format!("cannot look into `{shown}`: {error}"))?;
    if folder.is_dir() { Ok(Some(folder)) } else { Err(format!("`{shown}` is not a folder")) }
}

async fn find_duplicates(folder: &Path) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    report::step("folder", &walk::text(folder));
    let database = Database::from_env().await?;
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    table::create(pool).await?;
    report::step("database", &report::database(database.is_embedded(), began));

    let began = Instant::now();
    let found = walk::walk(folder);
    report::step("found", &report::found(&found, began));

    let began = Instant::now();
    let run = table::enqueue(pool, &walk::text(folder), &found.files).await?;
    report::step("enqueued", &report::enqueued(&found, began));

    let began = Instant::now();
    let (stored, bar) = (Stored::default(), report::bar(run.files));
    let end = hash_all(pool, &run, folder, &stored, &bar).await?;
    let elapsed = began.elapsed();
    bar.finish_and_clear();
    let counts = run.counts(pool).await?;
    let (digests, bytes) = run.digests(pool).await?;
    report::step("hashed", &report::hashed(&counts, bytes, elapsed));

    if end == End::Interrupted {
        report::step("stopped", &report::interrupted(&run, &counts));
        database.close().await;
        return Ok(ExitCode::from(130));
    }
    check(&run, &counts, stored.0.load(Relaxed), digests)?;
    report::step("checked", &report::checked(digests));
    report::findings(&run.duplicates(pool).await?, &run.dead_letters(pool).await?, &found.unlisted);
    database.close().await;
    Ok(ExitCode::SUCCESS)
}

/// Checks that the jobs, the handlers and the table report the same number of files.
fn check(run: &Run, counts: &Counts, stored: u64, digests: u64) -> anyhow::Result<()> {
    let Counts { completed, dead, .. } = *counts;
    let same = completed + dead == run.files && completed == stored && stored == digests;
    ensure!(
        same,
        "of {} jobs {completed} completed and {dead} are dead, but {stored} digests were stored, and {digests} are there",
        run.files
    );
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    Over,
    Interrupted,
}

/// Runs a worker until every job of the run is finished or the user presses Ctrl-C. After Ctrl-C running jobs finish, and all other jobs
/// stay in the queue.
async fn hash_all(pool: &PgPool, run: &Run, folder: &Path, stored: &Stored, bar: &ProgressBar) -> anyhow::Result<End> {
    // Uses a few handlers per core, because handlers also wait for the disk and the database.
    let handlers = 4 * thread::available_parallelism().map_or(1, NonZero::get).min(4);
    let mut end = Ok(End::Interrupted);
    Worker::new(pool.clone())
        .register::<HashFile>()
        .queue(&run.queue, handlers)
        .state(Folder(folder.to_owned()))
        .state(stored.clone())
        .grace(Duration::from_secs(1))
        .run(async {
            tokio::select! {
                over = wait_until_over(pool, run, stored, bar) => end = over.map(|()| End::Over),
                () = shutdown_signal() => {}
            }
        })
        .await?;
    Ok(end?)
}

/// Updates the progress bar until the run is finished. The count of the run's unfinished jobs is expensive, so it is queried only once a
/// second and when all files seem to be done.
async fn wait_until_over(pool: &PgPool, run: &Run, stored: &Stored, bar: &ProgressBar) -> sqlx::Result<()> {
    for tick in 1_u64.. {
        let troubles = run.troubles(pool).await?;
        let over = stored.0.load(Relaxed) + troubles.dead;
        bar.set_position(over);
        bar.set_message(report::troubles(&troubles));
        if (over >= run.files || tick.is_multiple_of(20)) && run.counts(pool).await?.left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn jobs_that_earlier_releases_enqueued_are_read() {
        queue_core::testing::assert_payloads!("demo.lock");
    }
}
