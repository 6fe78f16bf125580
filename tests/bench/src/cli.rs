//! Command line, which selects the workloads and prints each result as soon as it is available.

use std::{
    io::{self, ErrorKind, IsTerminal as _, Write as _, stderr, stdout},
    process::ExitCode,
};

use clap::{
    Parser, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use queue_worker::Database;
use tracing_subscriber::EnvFilter;

use crate::{
    BenchError, Plan, Report, Workload, process, run,
    sizes::{self, SizesOptions},
};

const MANUAL: &str = "\
Examples:
  cargo bench-queue                                 every workload; about ten minutes
  cargo bench-queue w1 w3 --runs 5
  cargo bench-queue --quick --json                  small sizes: checks that no job is lost, measures no speed
  cargo bench-queue sizes                           latency of pages, API responses and commands on a store of 11 million jobs

The database queue_bench_<pid> is created on the server and dropped at the end. The server must have no other clients. docs/PERFORMANCE.md
explains the figures.";

/// Measures this queue on a server. Each result is compared with the same workload in plain SQL.
#[derive(Parser)]
#[command(
    name = "queue-bench",
    version,
    about = "Measures this queue on a server, each figure beside the same shape in plain SQL",
    after_long_help = MANUAL,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    max_term_width = 110
)]
struct Args {
    /// W1 to W11, L1 to L4, F1 to F6, S1, or all
    #[arg(value_name = "WORKLOAD", default_value = "all", ignore_case = true, value_parser = workloads())]
    workloads: Vec<&'static [(&'static str, Workload)]>,
    /// Print a line of JSON for each result
    #[arg(long)]
    json: bool,
    /// Number of runs per result; the median is shown. Default 3
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: Option<u16>,
    /// Scale of all sizes and durations, as a share of the full values. Default 1
    #[arg(long, value_name = "SHARE", value_parser = scale)]
    scale: Option<f64>,
    /// Run once with a hundredth of every size. Only checks counts; the results are meaningless
    #[arg(long, conflicts_with_all = ["runs", "scale"])]
    quick: bool,
    /// URL of the server, as `postgres://user:password@host:5432/name`; without a URL, an embedded PostgreSQL is used
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<String>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// Environment variable that makes this binary act as the `queue-worker` command line, so that `sizes` can measure its commands.
pub(crate) const AS_COMMAND: &str = "QUEUE_BENCH_AS_COMMAND";

/// Subcommands. Without a subcommand, the program runs the benchmark.
#[derive(Clone, Subcommand)]
enum Role {
    /// Measure the latency of each dashboard page, each API response and each command on a large store, which is created first
    Sizes {
        /// Scale of a store with 10,000,000 finished, 1,000,000 ready, 100,000 dead and 100,000 scheduled jobs in 10,000 queues
        #[arg(long, value_name = "SHARE", default_value = "1", value_parser = scale)]
        scale: f64,
        /// Number of runs per request; the median is shown
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
        runs: u16,
        /// Only requests whose name contains this text, such as `list` or `GET /`
        #[arg(long, value_name = "TEXT", default_value = "")]
        only: String,
        /// Use the existing store in the database, and do not change it
        #[arg(long, conflicts_with = "scale")]
        here: bool,
        /// URL of the server; without a URL, an embedded PostgreSQL is used
        #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
        database_url: Option<String>,
    },
    /// Worker process of the benchmark
    #[command(hide = true)]
    Worker {
        /// Number of job runs after which to report
        #[arg(long)]
        goal: u64,
        /// Tune the worker for jobs that take no time, with the given number of jobs per claim
        #[arg(long)]
        batch: Option<usize>,
        /// URL of a database whose store the worker serves; repeat the option for several stores
        #[arg(long)]
        store: Vec<String>,
    },
}

/// Entry point of the program.
#[must_use]
pub fn main() -> ExitCode {
    if std::env::var_os(AS_COMMAND).is_some() {
        return queue_worker::cli::main();
    }
    let args = Args::parse();
    log();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = runtime.map_err(|error| BenchError::Process(format!("cannot be set up: {error}"))).and_then(|runtime| {
        let done = runtime.block_on(run_command(&args));
        // Does not wait for blocking tasks that are still running, because they could delay the exit.
        runtime.shutdown_background();
        done
    });
    let Err(error) = done else { return ExitCode::SUCCESS };
    // If stderr is closed, the error cannot be reported.
    let _ = writeln!(stderr(), "error: {error}");
    ExitCode::FAILURE
}

async fn run_command(args: &Args) -> Result<(), BenchError> {
    let of_role = if let Some(Role::Sizes { database_url, .. }) = &args.role { database_url.as_deref() } else { None };
    let database = match args.database_url.as_deref().or(of_role).filter(|url| !url.is_empty()) {
        Some(url) => Database::connect(url).await?,
        None => Database::embedded().await?,
    };
    let done = match &args.role {
        Some(Role::Worker { goal, batch, store }) => process::work(database.pool(), store, *batch, *goal).await.map_err(BenchError::from),
        Some(Role::Sizes { scale, runs, only, here, .. }) => {
            let options = SizesOptions { share: (!here).then_some(*scale), runs: (*runs).into(), only };
            sizes::run(&database, options, line).await
        }
        None => run(&database, &selected(args), plan(args), |report| show(&report, args.json)).await,
    };
    database.close().await;
    done
}

fn plan(args: &Args) -> Plan {
    if args.quick {
        return Plan { runs: 1, scale: 0.01 };
    }
    Plan { runs: args.runs.unwrap_or(3).into(), scale: args.scale.unwrap_or(1.0) }
}

/// Returns each selected workload once, in the order of the arguments.
fn selected(args: &Args) -> Vec<Workload> {
    let mut selected: Vec<Workload> = Vec::new();
    for (_, workload) in args.workloads.iter().copied().flatten() {
        if !selected.contains(workload) {
            selected.push(*workload);
        }
    }
    selected
}

fn show(report: &Report, as_json: bool) -> Result<(), BenchError> {
    let line = match (as_json, report) {
        (true, Report::Server(_)) => return Ok(()),
        (true, report) => serde_json::to_string(report).map_err(io::Error::from)?,
        (false, report) => report.to_string(),
    };
    self::line(&line)
}

/// Prints a line. Closing stdout early, as `| head` does, is not an error.
fn line(text: &str) -> Result<(), BenchError> {
    match writeln!(stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Installs the logger. The driver's warnings about slow statements are disabled, because the benchmark runs slow statements on purpose.
/// `RUST_LOG` overrides this filter.
fn log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,sqlx::query=error"));
    let log = tracing_subscriber::fmt().with_writer(stderr).with_ansi(stderr().is_terminal()).log_internal_errors(false);
    log.with_env_filter(filter).init();
}

/// Returns the parser of workload names, which ignores case. Each name selects one workload, and `all` selects every workload.
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_workload_named_twice_is_measured_once() {
        let args = Args::parse_from(["queue-bench", "w3", "W6", "W1", "w3"]);
        assert_eq!(selected(&args), [Workload::Drain, Workload::EnqueueOne], "W6 is the cost of W3");
    }
}
