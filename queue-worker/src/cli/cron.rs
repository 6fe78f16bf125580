//! `cron` command: manages schedules.

use chrono::Utc;
use clap::Subcommand;
use queue_core::{
    Queue, Store,
    schedule::{Missed, Overlap, Schedule, ScheduleRecord},
};
use serde_json::{Value, json};

use super::{
    audit::AuditedTransaction,
    name_check::check_type,
    open::open_store,
    print,
    problem::Problem,
    settings::Settings,
    span::{Span, has_calendar_unit},
    values::{OutputArgs, whole_in},
};

#[derive(Subcommand)]
pub(super) enum CronCommand {
    /// List schedules with their next tick and the outcome of their last tick
    List(OutputArgs),
    /// Show a schedule with its next ticks and the outcomes of its last ticks
    Show {
        /// Schedule name
        name: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Create a schedule, or change the schedule with this name
    #[command(after_long_help = "\
Examples:
  queue-worker cron add report_eu --type report --payload '{\"region\": \"eu\"}' --cron '30 4 * * MON-FRI' --tz Europe/Berlin
  queue-worker cron add mail_eu --type mail --payload-version 2 --payload '{\"to\": [\"eu\"]}' --every 1h
  queue-worker cron add ping --type ping --every 15m --overlap allow")]
    Add {
        /// Schedule name
        name: String,
        /// Type of the schedule's jobs
        #[arg(long = "type", value_name = "JOB_TYPE")]
        job_type: String,
        /// Payload of the schedule's jobs, as JSON
        #[arg(long, value_name = "JSON", default_value = "{}", value_parser = payload)]
        payload: Value,
        /// Version of the payload
        #[arg(long, value_name = "N", value_parser = payload_version, default_value_t = 1)]
        payload_version: u16,
        #[command(flatten)]
        timing: TimingArgs,
        /// Policy for ticks missed because no worker was running: `coalesce` (one job for all missed ticks), `skip` or `catch_up(N)`
        #[arg(long, value_name = "POLICY", value_parser = missed, default_value = "coalesce")]
        missed: Missed,
        /// Delay after which a tick counts as missed (default: 1m)
        #[arg(long, value_name = "DURATION")]
        grace: Option<Span>,
        /// Policy for a tick while a job of an earlier tick is unfinished: `skip`, `allow` or `queue`
        #[arg(long, value_name = "POLICY", value_parser = overlap, default_value = "skip")]
        overlap: Overlap,
        /// Maximum random delay of each job
        #[arg(long, value_name = "DURATION")]
        jitter: Option<Span>,
        /// If the payload changes, cancel failed jobs of the schedule that are waiting for a retry
        #[arg(long)]
        supersede: bool,
    },
    /// Delete a schedule and keep its jobs
    Remove(ScheduleArgs),
    /// Pause a schedule until `resume`, even across deployments
    Pause(ScheduleArgs),
    /// Resume a paused schedule with its next tick
    Resume(ScheduleArgs),
    /// Enqueue a job of a schedule now
    Run(ScheduleArgs),
    /// Skip the next tick of a schedule
    Skip(ScheduleArgs),
    /// Print the next ticks of a schedule or an expression; an expression needs no database
    #[command(after_long_help = "\
Examples:
  queue-worker cron next report_eu
  queue-worker cron next --cron '30 2 * * SUN' --tz America/New_York --count 10")]
    Next {
        /// Schedule name
        #[arg(conflicts_with_all = ["cron", "every"])]
        name: Option<String>,
        #[command(flatten)]
        timing: NextArgs,
        /// Number of ticks to print
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole_in::<u16>(1..=u16::MAX.into()))]
        count: u16,
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(clap::Args)]
pub(super) struct ScheduleArgs {
    /// Schedule name
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub(super) struct TimingArgs {
    /// Cron expression: minute, hour, day of the month, month, day of the week
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "every")]
    cron: Option<String>,
    /// Interval between ticks; ticks are at multiples of the interval since 1970
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    every: Option<Span>,
    /// Time zone of the expression (default: UTC)
    #[arg(long, value_name = "ZONE", requires = "cron", conflicts_with = "every")]
    tz: Option<String>,
}

/// Optional timing arguments of `cron next`.
#[derive(clap::Args)]
pub(super) struct NextArgs {
    /// Cron expression
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "every")]
    cron: Option<String>,
    /// Interval between ticks
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    every: Option<Span>,
    /// Time zone of the expression (default: UTC)
    #[arg(long, value_name = "ZONE", requires = "cron", conflicts_with = "every")]
    tz: Option<String>,
}

fn payload(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("the payload is not JSON: {error}"))
}

/// Parses an interval. Rejects months and years, which need a cron expression.
fn interval(text: &str) -> Result<Span, String> {
    if has_calendar_unit(text) {
        return Err("months and years differ in length; use `--cron '0 0 1 * *'` or `--cron @yearly`".to_owned());
    }
    text.parse()
}

fn payload_version(text: &str) -> Result<u16, &'static str> {
    let fits = text.parse().ok().filter(|version| (1..=9999).contains(version));
    fits.ok_or("the payload version must be a whole number from 1 to 9999")
}

fn missed(text: &str) -> Result<Missed, &'static str> {
    Missed::from_sql(text).ok_or("the policy for missed ticks must be `coalesce`, `skip` or `catch_up(1)` to `catch_up(999)`")
}

fn overlap(text: &str) -> Result<Overlap, &'static str> {
    Overlap::from_sql(text).ok_or("the policy for overlaps must be `skip`, `allow` or `queue`")
}

/// Builds the schedule that the options describe.
fn build_schedule(cron: Option<String>, every: Option<Span>, tz: Option<String>) -> Schedule {
    let schedule = match (cron, every) {
        (Some(expression), _) => Schedule::cron(expression),
        (None, every) => Schedule::every(every.map(|every| every.0).unwrap_or_default()),
    };
    match tz {
        Some(zone) => schedule.tz(zone),
        None => schedule,
    }
}

/// Maximum number of ticks shown, separately for past and future ticks.
const SHOWN_TICKS: u16 = 10;

pub(super) async fn cron(settings: &Settings, command: CronCommand) -> Result<(), Problem> {
    if let CronCommand::Next { name: None, timing: NextArgs { cron, every, tz }, count, output } = command {
        if cron.is_none() && every.is_none() {
            return Err(Problem::usage(
                "no schedule or expression is given; name a schedule, or give `--cron EXPRESSION` or `--every DURATION`",
            ));
        }
        let ticks = build_schedule(cron, every, tz).next(Utc::now(), usize::from(count))?;
        return next_ticks(&ticks, output.json);
    }
    if let CronCommand::Add { timing: TimingArgs { cron: None, every: None, .. }, .. } = command {
        return Err(Problem::usage("the schedule has no timing; give `--cron EXPRESSION` or `--every DURATION`"));
    }
    let (database, store) = open_store(settings).await?;
    let pool = database.pool();
    let done = match command {
        CronCommand::List(output) => list(&Queue::new(pool).store(store).schedules().await?, output.json),
        CronCommand::Show { name, output } => show(pool, store, &name, output.json).await,
        CronCommand::Next { name, count, output, .. } => {
            let found = Queue::new(pool).store(store).schedule(&name.unwrap_or_default()).find().await?;
            next_ticks(&found.next(usize::from(count)), output.json)
        }
        CronCommand::Add {
            name,
            job_type,
            payload,
            payload_version,
            timing: TimingArgs { cron, every, tz },
            missed,
            grace,
            overlap,
            jitter,
            supersede,
        } => {
            let of_type = job_type.clone();
            let made = build_schedule(cron, every, tz).missed(missed).overlap(overlap);
            let mut made = made.job_json_version(job_type, payload_version, &payload);
            if let Some(Span(grace)) = grace {
                made = made.grace(grace);
            }
            if let Some(Span(jitter)) = jitter {
                made = made.jitter(jitter);
            }
            if supersede {
                made = made.supersede();
            }
            check_type(&database, store, Some(&of_type)).await?;
            let mut tx = AuditedTransaction::begin(pool, store).await?;
            Queue::on(&mut tx).store(store).schedule(&name).create(&made).await?;
            tx.commit("scheduled", format!("schedule {name}"), 0).await?;
            print::lines(&format!("{name} is scheduled"))
        }
        CronCommand::Remove(of) => change(pool, store, &of, ScheduleChange::Remove).await,
        CronCommand::Pause(of) => change(pool, store, &of, ScheduleChange::Pause).await,
        CronCommand::Resume(of) => change(pool, store, &of, ScheduleChange::Resume).await,
        CronCommand::Run(of) => change(pool, store, &of, ScheduleChange::Run).await,
        CronCommand::Skip(of) => change(pool, store, &of, ScheduleChange::Skip).await,
    };
    database.close().await;
    done
}

/// Change that a command makes to an existing schedule.
#[derive(Clone, Copy)]
enum ScheduleChange {
    Remove,
    Pause,
    Resume,
    Run,
    Skip,
}

async fn change(
    pool: &sqlx::PgPool,
    store: Store,
    ScheduleArgs { name, output }: &ScheduleArgs,
    change: ScheduleChange,
) -> Result<(), Problem> {
    let mut tx = AuditedTransaction::begin(pool, store).await?;
    let (act, done, what) = match change {
        ScheduleChange::Remove => {
            ("removed", "removed", Queue::on(&mut tx).store(store).schedule(name).delete().await.map(|()| Value::Null)?)
        }
        ScheduleChange::Pause => ("paused", "paused", Queue::on(&mut tx).store(store).schedule(name).pause().await.map(|()| Value::Null)?),
        ScheduleChange::Resume => {
            ("resumed", "resumed", Queue::on(&mut tx).store(store).schedule(name).resume().await.map(|()| Value::Null)?)
        }
        ScheduleChange::Run => ("run", "enqueued", json!(Queue::on(&mut tx).store(store).schedule(name).run_now().await?)),
        ScheduleChange::Skip => ("skipped", "skips", json!(Queue::on(&mut tx).store(store).schedule(name).skip_next().await?)),
    };
    tx.commit(act, format!("schedule {name}"), 0).await?;
    print_change(name, done, &what, output.json)
}

/// Prints the change to a schedule as text or as JSON.
fn print_change(name: &str, done: &str, what: &Value, as_json: bool) -> Result<(), Problem> {
    match what {
        _ if as_json => print::json(&json!({ "schedule": name, done: if what.is_null() { &Value::Bool(true) } else { what } })),
        Value::Null => print::lines(&format!("{name} is {done}")),
        Value::String(what) => print::lines(&format!("{name} {done} {what}")),
        what => print::lines(&format!("{name} {done} {what}")),
    }
}

fn next_ticks(ticks: &[chrono::DateTime<Utc>], as_json: bool) -> Result<(), Problem> {
    if as_json {
        return print::json(&json!({ "next": ticks }));
    }
    print::lines(&ticks.iter().map(|tick| print::time(*tick)).collect::<Vec<_>>().join("\n"))
}

/// Returns the schedule's next tick as text, or the reason why there is no next tick.
fn state(found: &ScheduleRecord) -> String {
    match found {
        ScheduleRecord { error: Some(why), .. } => format!("error: {why}"),
        ScheduleRecord { withdrawn_at: Some(_), .. } => "withdrawn".to_owned(),
        ScheduleRecord { paused_at: Some(_), .. } => "paused".to_owned(),
        _ => found.next(1).first().map_or_else(|| "waits for a worker".to_owned(), |tick| print::time(*tick)),
    }
}

fn timing(found: &ScheduleRecord) -> String {
    match (&found.cron, found.every) {
        (Some(expression), _) => format!("{expression} {}", found.tz),
        (None, every) => {
            format!("every {}", Span(std::time::Duration::try_from_secs_f64(every.unwrap_or_default()).unwrap_or_default()))
        }
    }
}

fn list(found: &[ScheduleRecord], as_json: bool) -> Result<(), Problem> {
    if as_json {
        return print::json(&json!({ "schedules": found }));
    }
    if found.is_empty() {
        return print::lines("there are no schedules");
    }
    let rows = found.iter().map(|found| {
        let last = found.last.as_ref().map_or_else(String::new, |last| {
            let by = last.error.as_deref().filter(|_| last.outcome == "overlapped").map_or_else(String::new, |by| format!(": {by}"));
            format!("{} {}{by}", print::time(last.tick), last.outcome)
        });
        [found.name.clone(), timing(found), found.job_type.clone(), state(found), last]
    });
    print::lines(&print::table(["schedule", "when", "type", "next", "last"], rows))
}

async fn show(pool: &sqlx::PgPool, store: Store, name: &str, as_json: bool) -> Result<(), Problem> {
    let found = Queue::new(pool).store(store).schedule(name).find().await?;
    let fires = Queue::new(pool).store(store).schedule(name).ticks(SHOWN_TICKS).await?;
    let next = found.next(usize::from(SHOWN_TICKS));
    if as_json {
        return print::json(&json!({ "schedule": found, "next": next, "fires": fires }));
    }
    let mut lines = vec![
        format!("{name}: {}, {} jobs, {}", timing(&found), found.job_type, found.source),
        format!("missed {}, overlap {}, state {}", found.missed, found.overlap, state(&found)),
    ];
    lines.extend(next.into_iter().map(|tick| format!("next  {}", print::time(tick))));
    lines.extend(fires.into_iter().map(|fire| {
        let job = fire.job.map_or_else(String::new, |job| format!(" job {job}"));
        let why = fire.error.map_or_else(String::new, |why| format!(" {why}"));
        format!("past  {} {}{job}{why}", print::time(fire.tick), fire.outcome)
    }));
    print::lines(&lines.join("\n"))
}
