//! `history` command: shows attempt outcomes, run times and start delays.

use std::time::Duration;

use clap::ValueEnum;
use queue_core::operate::{AttemptStatistics, Histogram, HistoryRange};
use serde_json::json;

use super::{
    name_check::{check_queue, check_type},
    open::open_for_reading,
    print,
    problem::Problem,
    settings::Settings,
    span::Span,
    values::OutputArgs,
};

/// Arguments of `history`.
#[derive(clap::Args)]
pub(super) struct HistoryArgs {
    /// Length of the time range that ends now; from 10s to 30d
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    last: Span,
    /// Show only this queue
    #[arg(long)]
    queue: Option<String>,
    /// Show only this job type, by its current name
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// Group rows by queue and type, or by time
    #[arg(long, value_enum, default_value_t = Grouping::Type)]
    by: Grouping,
    /// With --by time: length of a step (default: about a twentieth of the range)
    #[arg(long, value_name = "DURATION")]
    step: Option<Span>,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Grouping {
    Type,
    Time,
}

/// Longest time range that can be queried.
const LONGEST: Duration = Duration::from_hours(30 * 24);
const SHORTEST: Duration = Duration::from_secs(10);

/// Candidates for the default step length, in seconds.
const STEPS: [u64; 9] = [10, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400];

pub(super) async fn history(settings: &Settings, args: &HistoryArgs) -> Result<(), Problem> {
    let last = args.last.0;
    if args.by == Grouping::Type && args.step.is_some() {
        return Err(Problem::usage("`--step` needs `--by time`; add `--by time`, or omit `--step`"));
    }
    let step = args.step.map_or_else(|| default_step(last), |step| step.0);
    check_range(("--last", last), LONGEST)?;
    check_range(("--step", step), last)?;
    let past = HistoryRange {
        last,
        step: (args.by == Grouping::Time).then_some(step),
        queue: args.queue.clone(),
        job_type: args.job_type.clone(),
        apart: args.by == Grouping::Type,
    };
    let (database, store) = open_for_reading(settings).await?;
    check_queue(&database, store, past.queue.as_deref()).await?;
    check_type(&database, store, past.job_type.as_deref()).await?;
    let found = database.queue().store(store).history(&past).await?;
    database.close().await;
    if args.output.json {
        return print::json(&json!({ "history": found }));
    }
    if found.is_empty() {
        return print::lines(&format!("no attempt finished in the last {}", args.last));
    }
    let table = match args.by {
        Grouping::Type => print::table(
            header(["queue", "type"]),
            found.iter().map(|one| row([name(one.queue.as_ref()), name(one.job_type.as_ref())], one)),
        ),
        Grouping::Time => print::table(header(["since"]), found.iter().map(|one| row([print::time(one.at)], one))),
    };
    let parts: Vec<String> = [Some(table), other_outcomes(&found), left_out(&found)].into_iter().flatten().collect();
    print::lines(&parts.join("\n\n"))
}

/// Returns a usage error if the duration is out of range. The query itself would silently adjust such a duration.
fn check_range((option, duration): (&str, Duration), most: Duration) -> Result<(), Problem> {
    if (SHORTEST..=most).contains(&duration) {
        return Ok(());
    }
    let [duration, least, most] = [duration, SHORTEST, most].map(Span);
    Err(Problem::usage(format!("`{option}` is {duration}; it must be {least} to {most}")))
}

/// Returns the shortest of [`STEPS`] that divides the range into at most 24 full steps, or a day if none does.
fn default_step(last: Duration) -> Duration {
    let fits = |step: &u64| last.as_secs() / step <= 24;
    Duration::from_secs(STEPS.into_iter().find(fits).unwrap_or(86_400))
}

fn header<const N: usize>(first: [&'static str; N]) -> impl Iterator<Item = &'static str> {
    let figures = ["completed", "failed", "dead", "rate/s", "run p50", "p95", "p99", "start p50", "p95", "p99"];
    first.into_iter().chain(figures)
}

fn row<const N: usize>(first: [String; N], one: &AttemptStatistics) -> impl Iterator<Item = String> {
    let counts = [one.completed.to_string(), one.failed().to_string(), one.dead.to_string(), rate(one.rate())];
    let quantiles = |of: &Histogram| [0.5, 0.95, 0.99].map(|share| of.quantile(share).map_or_else(|| "-".to_owned(), format_short));
    first.into_iter().chain(counts).chain(quantiles(&one.run)).chain(quantiles(&one.start))
}

fn name(name: Option<&String>) -> String {
    name.cloned().unwrap_or_default()
}

/// Formats a rate in jobs per second. Low rates have more decimal places.
fn rate(rate: f64) -> String {
    if rate < 1.0 { format!("{rate:.4}") } else { format!("{rate:.1}") }
}

/// Formats a duration with the precision of the histogram.
fn format_short(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 0.01 => format!("{:.1}ms", seconds * 1000.0),
        seconds if seconds < 1.0 => format!("{:.0}ms", seconds * 1000.0),
        seconds if seconds < 60.0 => format!("{seconds:.1}s"),
        seconds if seconds < 3600.0 => format!("{:.0}m", seconds / 60.0),
        seconds => format!("{:.1}h", seconds / 3600.0),
    }
}

/// Formats the outcomes that have no separate column. Returns `None` if their counts are zero.
fn other_outcomes(found: &[AttemptStatistics]) -> Option<String> {
    let sum = |count: fn(&AttemptStatistics) -> u64| found.iter().map(count).sum::<u64>();
    let kinds = [
        ("timed out", sum(|one| one.timed_out)),
        ("panicked", sum(|one| one.panicked)),
        ("ended with their process", sum(|one| one.crashed)),
        ("cancelled", sum(|one| one.cancelled)),
        ("snoozed", sum(|one| one.snoozed)),
        ("given back", sum(|one| one.released)),
        ("lost their lease", sum(|one| one.lease_lost)),
        ("jobs expired", sum(|one| one.expired)),
    ];
    let any: Vec<String> = kinds.iter().filter(|(_, count)| *count > 0).map(|(kind, count)| format!("{count} {kind}")).collect();
    (!any.is_empty()).then(|| format!("further outcomes: {}", any.join(", ")))
}

fn left_out(found: &[AttemptStatistics]) -> Option<String> {
    let more = found.first().map_or(0, |one| one.left_out);
    (more > 0).then(|| format!("and {more} more queues and types"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_steps_are_about_twenty_of_a_round_length() {
        let steps = [60, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400].map(|last| default_step(Duration::from_secs(last)).as_secs());
        assert_eq!(steps, [10, 300, 900, 3600, 12 * 3600, 86_400]);
    }

    #[test]
    fn durations_have_the_precision_of_the_histogram() {
        let shown = [0.0, 0.0042, 0.25, 1.25, 90.0, 5400.0].map(|seconds| format_short(Duration::from_secs_f64(seconds)));
        assert_eq!(shown, ["0.0ms", "4.2ms", "250ms", "1.2s", "2m", "1.5h"]);
    }
}
