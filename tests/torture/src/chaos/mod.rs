//! `cargo chaos`: starts a server, workers and producers, injects faults drawn from a seed, and checks the outcome of every job.
//!
//! ```text
//! plan (seed -> faults)  crate::server (server)  crate::proxy (network)  processes (workers, producers)
//!   run: inject the plan while producers enqueue; then drain; then
//!     check (histories x faults x rows)  ticks  recoveries  zombies  saturate  durable
//!   bugs: play scenes, each with a seeded bug that the check must report
//! ```
//!
//! Workers and producers are processes of this binary in different roles. Only `zombies` depends on the implementation of the product: it
//! executes the product's own statements in other orders.

mod bugs;
mod check;
mod copy;
mod processes;
mod durable;
mod history;
mod inject;
mod limited;
mod plan;
mod produce;
mod recoveries;
mod run;
mod saturate;
mod scenes;
mod soak;
mod ticks;
mod work;
mod zombies;

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Parser;

use tests::{proxy, server};

/// Inject faults into a running queue, and check that no job is lost, duplicated or written too late
#[derive(Debug, Parser)]
#[command(name = "cargo chaos")]
struct Args {
    /// Seed of all faults and jobs. The seed is printed, so that a run can be repeated
    #[arg(long)]
    seed: Option<u64>,
    /// Run a short test of about two minutes, with 5,000 jobs and 150 durable jobs
    #[arg(long)]
    quick: bool,
    /// Validate the checker with seeded bugs. The checker must report each bug
    #[arg(long, conflicts_with_all = ["quick", "soak"])]
    bugs: bool,
    /// Run without faults for the given duration, and check that memory, files and connections do not grow
    #[arg(long, value_parser = humantime::parse_duration)]
    soak: Option<Duration>,
    /// Put the given number of durable jobs to sleep, kill all workers, and let another release continue
    #[arg(long, conflicts_with_all = ["quick", "soak", "bugs"])]
    fleet: Option<u64>,
    /// Run durable jobs only, with as many faults as a full run, or as a short run with `--quick`
    #[arg(long, conflicts_with_all = ["soak", "bugs", "fleet"])]
    durable: bool,
    /// Run one test scenario (scene) of `--bugs` in this process, without a bug
    #[arg(long, hide = true)]
    scene: Option<String>,
}

/// Entry point of the binary. `CHAOS_ROLE` selects the kind of process.
pub fn main() -> ExitCode {
    let result = match std::env::var("CHAOS_ROLE").as_deref() {
        Ok("work") => work::main().map(|()| true),
        Ok("produce") => produce::main().map(|()| true),
        _ => direct(),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn direct() -> Result<bool> {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(1..1_000_000_000));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match args {
            Args { scene: Some(scene), .. } => scenes::play(&scene).await,
            Args { bugs: true, .. } => bugs::check_the_checker(),
            Args { soak: Some(span), .. } => soak::soak(span).await,
            Args { fleet: Some(jobs), .. } => run::fleet(jobs).await,
            Args { durable: true, quick, .. } => run::durable(seed, quick).await,
            Args { quick: true, .. } => run::run(seed, &plan::Scale::quick(), true).await,
            _ => run::run(seed, &plan::Scale::full(), false).await,
        }
    })
}
