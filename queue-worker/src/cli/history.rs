//! `history`: what came of attempts, and how long they took.

use std::time::Duration;

use clap::ValueEnum;
use queue_core::operate::{self, Figures, Histogram, Past};
use serde_json::json;

use super::{
    known_queue::{check_queue, check_type},
    open::open_to_look,
    print,
    problem::Problem,
    settings::Settings,
    span::Span,
    values::Output,
};

/// Which part of the past, and how it is shown.
#[derive(clap::Args)]
pub(super) struct HistoryArgs {
    /// How far back: 10s to 30d
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    last: Span,
    /// Of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Of this job type, by its present name
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// A row for each queue and type, or one for each step of time
    #[arg(long, value_enum, default_value_t = By::Type)]
    by: By,
    /// With --by time: how long a step is; default about a twentieth of the time
    #[arg(long, value_name = "DURATION")]
    step: Option<Span>,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Type,
    Time,
}

/// How far back there are figures, and how fine they are.
const LONGEST: Duration = Duration::from_hours(30 * 24);
const SHORTEST: Duration = Duration::from_secs(10);

/// Steps that people think in, in seconds.
const STEPS: [u64; 9] = [10, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400];

pub(super) async fn history(settings: &Settings, args: &HistoryArgs) -> Result<(), Problem> {
    let last = args.last.0;
    if args.by == By::Type && args.step.is_some() {
        return Err(Problem::usage("steps are of time; say `--by time`, or leave `--step` out"));
    }
    let step = args.step.map_or_else(|| step_of(last), |step| step.0);
    check(("--last", last), LONGEST)?;
    check(("--step", step), last)?;
    let past = Past {
        last,
        step: (args.by == By::Time).then_some(step),
        queue: args.queue.clone(),
        job_type: args.job_type.clone(),
        apart: args.by == By::Type,
    };
    let (database, store) = open_to_look(settings).await?;
    check_queue(&database, store, past.queue.as_deref()).await?;
    check_type(&database, store, past.job_type.as_deref()).await?;
    let found = operate::history(database.pool(), store, &past).await?;
    database.close().await;
    if args.output.json {
        return print::json(&json!({ "history": found }));
    }
    if found.is_empty() {
        return print::lines(&format!("nothing came of any attempt in the last {}", args.last));
    }
    let table = match args.by {
        By::Type => print::table(
            header(["queue", "type"]),
            found.iter().map(|one| row([name(one.queue.as_ref()), name(one.job_type.as_ref())], one)),
        ),
        By::Time => print::table(header(["since"]), found.iter().map(|one| row([print::time(one.at)], one))),
    };
    let parts: Vec<String> = [Some(table), besides(&found), left_out(&found)].into_iter().flatten().collect();
    print::lines(&parts.join("\n\n"))
}

/// What is shorter or longer would be taken for another.
fn check((option, duration): (&str, Duration), most: Duration) -> Result<(), Problem> {
    if (SHORTEST..=most).contains(&duration) {
        return Ok(());
    }
    let [duration, least, most] = [duration, SHORTEST, most].map(Span);
    Err(Problem::usage(format!("`{option}` is {duration}; it must be {least} to {most}")))
}

/// About twenty steps, of a length that people think in.
fn step_of(last: Duration) -> Duration {
    let fits = |step: &u64| last.as_secs() / step <= 24;
    Duration::from_secs(STEPS.into_iter().find(fits).unwrap_or(86_400))
}

fn header<const N: usize>(first: [&'static str; N]) -> impl Iterator<Item = &'static str> {
    let figures = ["completed", "failed", "dead", "rate/s", "run p50", "p95", "p99", "start p50", "p95", "p99"];
    first.into_iter().chain(figures)
}

fn row<const N: usize>(first: [String; N], one: &Figures) -> impl Iterator<Item = String> {
    let counts = [one.completed.to_string(), one.failed().to_string(), one.dead.to_string(), rate(one.rate())];
    let quantiles = |of: &Histogram| [0.5, 0.95, 0.99].map(|share| of.quantile(share).map_or_else(|| "-".to_owned(), short));
    first.into_iter().chain(counts).chain(quantiles(&one.run)).chain(quantiles(&one.start))
}

fn name(name: Option<&String>) -> String {
    name.cloned().unwrap_or_default()
}

/// Jobs a second; of few the zeros would say nothing.
fn rate(rate: f64) -> String {
    if rate < 1.0 { format!("{rate:.4}") } else { format!("{rate:.1}") }
}

/// As exactly as a histogram knows it.
fn short(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 0.01 => format!("{:.1}ms", seconds * 1000.0),
        seconds if seconds < 1.0 => format!("{:.0}ms", seconds * 1000.0),
        seconds if seconds < 60.0 => format!("{seconds:.1}s"),
        seconds if seconds < 3600.0 => format!("{:.0}m", seconds / 60.0),
        seconds => format!("{:.1}h", seconds / 3600.0),
    }
}

/// What is in no column, if there was any.
fn besides(found: &[Figures]) -> Option<String> {
    let sum = |count: fn(&Figures) -> u64| found.iter().map(count).sum::<u64>();
    let kinds = [
        ("timed out", sum(|one| one.timed_out)),
        ("panicked", sum(|one| one.panicked)),
        ("ended with their process", sum(|one| one.crashed)),
        ("cancelled", sum(|one| one.cancelled)),
        ("snoozed", sum(|one| one.snoozed)),
        ("given back", sum(|one| one.released)),
        ("ran in vain", sum(|one| one.lease_lost)),
        ("jobs expired", sum(|one| one.expired)),
    ];
    let any: Vec<String> = kinds.iter().filter(|(_, count)| *count > 0).map(|(kind, count)| format!("{count} {kind}")).collect();
    (!any.is_empty()).then(|| format!("of these and besides: {}", any.join(", ")))
}

fn left_out(found: &[Figures]) -> Option<String> {
    let more = found.first().map_or(0, |one| one.left_out);
    (more > 0).then(|| format!("and {more} more queues and types"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_about_twenty_of_a_length_that_people_think_in() {
        let steps = [60, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400].map(|last| step_of(Duration::from_secs(last)).as_secs());
        assert_eq!(steps, [10, 300, 900, 3600, 12 * 3600, 86_400]);
    }

    #[test]
    fn durations_are_as_long_as_they_are_known() {
        let shown = [0.0, 0.0042, 0.25, 1.25, 90.0, 5400.0].map(|seconds| short(Duration::from_secs_f64(seconds)));
        assert_eq!(shown, ["0.0ms", "4.2ms", "250ms", "1.2s", "2m", "1.5h"]);
    }
}
