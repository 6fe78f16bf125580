//! `cron`: schedules, and what is done to them.

use chrono::Utc;
use clap::Subcommand;
use queue_core::{
    Store,
    schedule::{self, Missed, Overlap, Schedule, ScheduleRecord},
};
use serde_json::{Value, json};

use super::{
    known_queue::check_type,
    noted::Noted,
    open::open_store,
    print,
    problem::Problem,
    settings::Settings,
    span::{Span, has_calendar_unit},
    values::{Output, whole_in},
};

#[derive(Subcommand)]
pub(super) enum CronCommand {
    /// List the schedules, each with its next tick and what came of its last
    List(Output),
    /// Show one schedule, its next ticks and what came of the last ones
    Show {
        /// Its name
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Make a schedule, or change the one of this name
    #[command(after_long_help = "\
Examples:
  queue-worker cron add report_eu --type report --payload '{\"region\": \"eu\"}' --cron '30 4 * * MON-FRI' --tz Europe/Berlin
  queue-worker cron add mail_eu --type mail --payload-version 2 --payload '{\"to\": [\"eu\"]}' --every 1h
  queue-worker cron add ping --type ping --every 15m --overlap allow")]
    Add {
        /// Its name
        name: String,
        /// The type of its jobs
        #[arg(long = "type", value_name = "JOB_TYPE")]
        job_type: String,
        /// The payload of its jobs, as JSON
        #[arg(long, value_name = "JSON", default_value = "{}", value_parser = payload)]
        payload: Value,
        /// Which version of its type that is
        #[arg(long, value_name = "N", value_parser = payload_version, default_value_t = 1)]
        payload_version: u16,
        #[command(flatten)]
        timing: TimingArgs,
        /// What becomes of ticks that nobody was there for: `coalesce` (one job for all), `skip` or `catch_up(N)`
        #[arg(long, value_name = "POLICY", value_parser = missed, default_value = "coalesce")]
        missed: Missed,
        /// How late a tick may be before it counts as missed; 1m unless said
        #[arg(long, value_name = "DURATION")]
        grace: Option<Span>,
        /// What becomes of a tick while a job of an earlier one is not over: `skip`, `allow` or `queue`
        #[arg(long, value_name = "POLICY", value_parser = overlap, default_value = "skip")]
        overlap: Overlap,
        /// Put each job off by up to this
        #[arg(long, value_name = "DURATION")]
        jitter: Option<Span>,
        /// With another payload than before, cancel its jobs that have failed and wait for another try
        #[arg(long)]
        supersede: bool,
    },
    /// Take a schedule away; its jobs stay
    Remove(Name),
    /// No ticks until it is resumed, whatever is deployed
    Pause(Name),
    /// Go on with the next tick
    Resume(Name),
    /// Enqueue a job of it now
    Run(Name),
    /// No job at its next tick
    Skip(Name),
    /// Print the next ticks of a schedule, or of an expression, which needs no database
    #[command(after_long_help = "\
Examples:
  queue-worker cron next report_eu
  queue-worker cron next --cron '30 2 * * SUN' --tz America/New_York --count 10")]
    Next {
        /// The schedule's name
        #[arg(conflicts_with_all = ["cron", "every"])]
        name: Option<String>,
        #[command(flatten)]
        timing: NextArgs,
        /// How many
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole_in::<u16>(1..=u16::MAX.into()))]
        count: u16,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(clap::Args)]
pub(super) struct Name {
    /// Its name
    name: String,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
pub(super) struct TimingArgs {
    /// At the times of this expression: minute, hour, day of the month, month, day of the week
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "every")]
    cron: Option<String>,
    /// At every multiple of this since 1970
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    every: Option<Span>,
    /// The time zone of the expression; UTC unless said
    #[arg(long, value_name = "ZONE", requires = "cron", conflicts_with = "every")]
    tz: Option<String>,
}

/// As above, where none is needed.
#[derive(clap::Args)]
pub(super) struct NextArgs {
    /// Of this expression
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "every")]
    cron: Option<String>,
    /// Of this interval
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    every: Option<Span>,
    /// The time zone of the expression; UTC unless said
    #[arg(long, value_name = "ZONE", requires = "cron", conflicts_with = "every")]
    tz: Option<String>,
}

fn payload(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("the payload is no JSON: {error}"))
}

/// Months and years are left to cron.
fn interval(text: &str) -> Result<Span, String> {
    if has_calendar_unit(text) {
        return Err("months and years differ in length; use `--cron '0 0 1 * *'` or `--cron @yearly`".to_owned());
    }
    text.parse()
}

fn payload_version(text: &str) -> Result<u16, &'static str> {
    let fits = text.parse().ok().filter(|version| (1..=9999).contains(version));
    fits.ok_or("the version of a payload is a whole number from 1 to 9999")
}

fn missed(text: &str) -> Result<Missed, &'static str> {
    Missed::from_sql(text).ok_or("a policy on missed ticks is `coalesce`, `skip` or `catch_up(1)` to `catch_up(999)`")
}

fn overlap(text: &str) -> Result<Overlap, &'static str> {
    Overlap::from_sql(text).ok_or("a policy on overlaps is `skip`, `allow` or `queue`")
}

/// When it is by what was written.
fn timed(cron: Option<String>, every: Option<Span>, tz: Option<String>) -> Schedule {
    let schedule = match (cron, every) {
        (Some(expression), _) => Schedule::cron(expression),
        (None, every) => Schedule::every(every.map(|every| every.0).unwrap_or_default()),
    };
    match tz {
        Some(zone) => schedule.tz(zone),
        None => schedule,
    }
}

/// So many ticks are shown of one schedule, before and after.
const SHOWN: u16 = 10;

pub(super) async fn cron(settings: &Settings, command: CronCommand) -> Result<(), Problem> {
    if let CronCommand::Next { name: None, timing: NextArgs { cron, every, tz }, count, output } = command {
        if cron.is_none() && every.is_none() {
            return Err(Problem::usage("nothing has ticks here; name a schedule, or give `--cron EXPRESSION` or `--every DURATION`"));
        }
        let ticks = timed(cron, every, tz).next(Utc::now(), usize::from(count))?;
        return next_ticks(&ticks, output.json);
    }
    if let CronCommand::Add { timing: TimingArgs { cron: None, every: None, .. }, .. } = command {
        return Err(Problem::usage("nothing says when there are ticks; give `--cron EXPRESSION` or `--every DURATION`"));
    }
    let (database, store) = open_store(settings).await?;
    let pool = database.pool();
    let done = match command {
        CronCommand::List(output) => list(&schedule::list(pool, store).await?, output.json),
        CronCommand::Show { name, output } => show(pool, store, &name, output.json).await,
        CronCommand::Next { name, count, output, .. } => {
            let found = schedule::find(pool, store, &name.unwrap_or_default()).await?;
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
            let made = timed(cron, every, tz).missed(missed).overlap(overlap);
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
            let mut noted = Noted::begin(pool, store).await?;
            schedule::create(&mut *noted, store, &name, &made).await?;
            noted.commit("scheduled", format!("schedule {name}"), 0).await?;
            print::lines(&format!("{name} is scheduled"))
        }
        CronCommand::Remove(of) => change(pool, store, &of, Change::Remove).await,
        CronCommand::Pause(of) => change(pool, store, &of, Change::Pause).await,
        CronCommand::Resume(of) => change(pool, store, &of, Change::Resume).await,
        CronCommand::Run(of) => change(pool, store, &of, Change::Run).await,
        CronCommand::Skip(of) => change(pool, store, &of, Change::Skip).await,
    };
    database.close().await;
    done
}

/// What is done to a schedule that is there.
#[derive(Clone, Copy)]
enum Change {
    Remove,
    Pause,
    Resume,
    Run,
    Skip,
}

async fn change(pool: &sqlx::PgPool, store: Store, Name { name, output }: &Name, change: Change) -> Result<(), Problem> {
    let mut noted = Noted::begin(pool, store).await?;
    let (act, done, what) = match change {
        Change::Remove => ("removed", "removed", schedule::delete(&mut *noted, store, name).await.map(|()| Value::Null)?),
        Change::Pause => ("paused", "paused", schedule::pause(&mut *noted, store, name).await.map(|()| Value::Null)?),
        Change::Resume => ("resumed", "resumed", schedule::resume(&mut *noted, store, name).await.map(|()| Value::Null)?),
        Change::Run => ("run", "enqueued", json!(schedule::run_now(&mut *noted, store, name).await?)),
        Change::Skip => ("skipped", "skips", json!(schedule::skip_next(&mut *noted, store, name).await?)),
    };
    noted.commit(act, format!("schedule {name}"), 0).await?;
    said(name, done, &what, output.json)
}

/// What was done to a schedule, and what came of it.
fn said(name: &str, done: &str, what: &Value, as_json: bool) -> Result<(), Problem> {
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

/// In a word or two: whether it has ticks, and why not.
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
    let found = schedule::find(pool, store, name).await?;
    let fires = schedule::fires(pool, store, name, SHOWN).await?;
    let next = found.next(usize::from(SHOWN));
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
