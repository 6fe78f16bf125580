//! `cargo chaos`: a server, workers and producers of its own, faults drawn from a seed, and a check of what became of every job.
//!
//! ```text
//! plan (seed -> faults)  crate::server (server)  crate::proxy (network)  crew (processes)
//!   run: inject the plan while producers enqueue; then drain; then
//!     check (histories x faults x rows)  ticks  recoveries  zombies  saturate  durable
//!   bugs: scenes, each with a seeded bug that the check must report
//! ```
//!
//! All processes are this one binary in different roles. Nothing here knows how the product does its work, except `zombies`, which runs the
//! product's own statements out of their order.

mod bugs;
mod check;
mod copy;
mod crew;
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

/// Injects faults into a queue at work, and checks that nothing is lost, doubled or written too late.
#[derive(Debug, Parser)]
#[command(name = "cargo chaos")]
struct Args {
    /// What all faults and jobs are drawn from; printed, so that a run can be repeated.
    #[arg(long)]
    seed: Option<u64>,
    /// A short run: 5,000 jobs and 150 durable ones, about two minutes.
    #[arg(long)]
    quick: bool,
    /// Checks the checker: seeded bugs, each of which must be reported.
    #[arg(long, conflicts_with_all = ["quick", "soak"])]
    bugs: bool,
    /// Works without faults for so long, and checks that memory, files and connections do not grow.
    #[arg(long, value_parser = humantime::parse_duration)]
    soak: Option<Duration>,
    /// Lets so many durable jobs fall asleep, kills all workers, and lets another release go on.
    #[arg(long, conflicts_with_all = ["quick", "soak", "bugs"])]
    fleet: Option<u64>,
    /// Only durable jobs, under as many faults as in a whole run; with `--quick` as in a short one.
    #[arg(long, conflicts_with_all = ["soak", "bugs", "fleet"])]
    durable: bool,
    /// One scene of `--bugs` in this process, as it is.
    #[arg(long, hide = true)]
    scene: Option<String>,
}

/// What the binary does; which process of a run it is, its environment says.
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
