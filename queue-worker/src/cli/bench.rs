//! `bench`: what the queue costs. Chooses the workloads and prints the figures as they come.

use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::{open, print, problem::Problem, settings::Settings};
use crate::bench::{self, BenchError, Plan, Report, Workload};

#[derive(clap::Args)]
pub(super) struct Bench {
    /// W1 to W11, or all
    #[arg(value_name = "WORKLOAD", default_value = "all", ignore_case = true, value_parser = workloads())]
    workloads: Vec<&'static [(&'static str, Workload)]>,
    /// Print a line of JSON for each figure
    #[arg(long)]
    json: bool,
    /// How often each figure is measured; the median is shown. Default 3
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: Option<u16>,
    /// Sizes and spans, as a share of the full ones. Default 1
    #[arg(long, value_name = "SHARE", value_parser = scale)]
    scale: Option<f64>,
    /// A hundredth of every size, one run: for its counts, not its times
    #[arg(long, conflicts_with_all = ["runs", "scale"])]
    quick: bool,
}

#[derive(clap::Args)]
pub(super) struct BenchWorker {
    /// Say when so many jobs have run
    #[arg(long)]
    goal: u64,
    /// Set up for jobs that take no time
    #[arg(long)]
    tuned: bool,
}

pub(super) async fn bench(settings: &Settings, wanted: &Bench) -> Result<(), Problem> {
    let plan = if wanted.quick {
        Plan { runs: 1, scale: 0.01 }
    } else {
        Plan { runs: wanted.runs.unwrap_or(3).into(), scale: wanted.scale.unwrap_or(1.0) }
    };
    let mut workloads: Vec<Workload> = Vec::new();
    for (_, workload) in wanted.workloads.iter().copied().flatten() {
        if !workloads.contains(workload) {
            workloads.push(*workload);
        }
    }
    let database = open(settings).await?;
    let as_json = wanted.json;
    let done = bench::run(&database, &workloads, plan, move |report| show(&report, as_json)).await;
    database.close().await;
    done.map_err(|error| match error {
        BenchError::Queue(error) => error.into(),
        BenchError::Database(error) => error.into(),
        other => Problem::failed(other),
    })
}

pub(super) async fn worker(settings: &Settings, worker: &BenchWorker) -> Result<(), Problem> {
    let database = open(settings).await?;
    bench::work(database.pool(), worker.tuned, worker.goal).await?;
    database.close().await;
    Ok(())
}

fn show(report: &Report, as_json: bool) -> Result<(), BenchError> {
    let shown = match (as_json, report) {
        (true, Report::Server(_)) => return Ok(()),
        (true, report) => serde_json::to_string(report).map_err(Problem::failed).and_then(|line| print::lines(&line)),
        (false, report) => print::lines(&report.to_string()),
    };
    shown.map_err(|problem| BenchError::Show(Box::new(problem)))
}

/// The names, in any case; each stands for one workload, `all` for every one.
fn workloads() -> impl TypedValueParser<Value = &'static [(&'static str, Workload)]> {
    let names = Workload::ALL.iter().map(|(name, _)| *name).chain(["all"]);
    PossibleValuesParser::new(names).map(|name| {
        let at = Workload::ALL.iter().position(|(known, _)| name.eq_ignore_ascii_case(known));
        at.map_or(Workload::ALL.as_slice(), |at| &Workload::ALL[at..=at])
    })
}

fn scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| "a share is a number, like 0.1".to_owned())?;
    if (0.001..=10.0).contains(&scale) { Ok(scale) } else { Err("a share is 0.001 to 10".to_owned()) }
}
