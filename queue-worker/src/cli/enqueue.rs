//! `enqueue` command: enqueues a job by its type's name.

use clap::Args;
use queue_core::{
    EnqueueOutcome, Error, Queue,
    options::Options,
    registry::{Registration, Registry},
};
use serde_json::{Map, Value, json};

use super::{
    audit::AuditedTransaction,
    json_arg::parse_json,
    name_check::{check_queue, check_type_of_new_job},
    open::open_store,
    print,
    problem::Problem,
    settings::Settings,
    values::OutputArgs,
};

pub(super) const MANUAL: &str = "\
Examples:
  queue-worker enqueue send_email '{\"to\": \"ada@example.org\"}'
  queue-worker enqueue send_email @email.json --options '{\"queue\": \"bulk\", \"after\": \"10 minutes\"}'
  queue-worker enqueue nightly_report null --options '{\"unique_key\": \"2026-11-30\"}'

The options are those of the SQL function `queue.enqueue`: queue, priority, max_attempts, run_at, after, expires_at, expires_in, key,
key_policy, fair, unique_key, unique_while, on_conflict, meta and version. The defaults are those of this binary's code; for a type of another
binary, those that its workers publish, and version 1 of the payload. Keys that the code computes from the payload (key, fair, unique, limits by
key) are not set; give them as options. Types with encrypted payloads are refused by a binary that has them.";

/// Suggested fix for options that are not a JSON object.
const OBJECT: &str = "give a JSON object, as in '{\"queue\": \"bulk\"}'";

#[derive(Args)]
pub(super) struct EnqueueArgs {
    /// Job type, by its stored name
    #[arg(value_name = "TYPE")]
    job_type: String,
    /// Payload: JSON, @FILE with JSON, or - for JSON on stdin
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    payload: String,
    /// Enqueue a job of a type that neither the store nor this binary has, for a worker that is deployed later
    #[arg(long)]
    new_type: bool,
    /// Options of the enqueue, as a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    options: String,
    #[command(flatten)]
    output: OutputArgs,
}

/// Enqueues the job and records it in the audit log.
pub(super) async fn enqueue(settings: &Settings, args: EnqueueArgs) -> Result<(), Problem> {
    let EnqueueArgs { job_type, payload, new_type, options, output } = args;
    let payload = parse_json("payload", &payload, "write a string in double quotes, as in '\"yes\"', and a job without fields as 'null'")?;
    let options = parse_json("value of --options", &options, OBJECT)?;
    let Ok(Value::Object(mut options)) = options.get().parse() else {
        return Err(Problem::usage(format!("the value of --options is no JSON object; {OBJECT}")));
    };
    let queue = options.get("queue").and_then(Value::as_str).map(str::to_owned);
    let registry = Registry::linked().map_err(crate::error::Error::from)?;
    if let Some(known) = registry.get(&job_type).map(Registration::options) {
        if known.seal.is_some() {
            return Err(Problem::refused(format!(
                "the payloads of `{job_type}` are encrypted, and this command would store the payload as clear text; enqueue it by a program"
            )));
        }
        add_defaults(&mut options, known);
    }
    let (database, store) = open_store(settings).await?;
    if !new_type {
        check_type_of_new_job(&database, store, &job_type).await?;
    }
    check_queue(&database, store, queue.as_deref()).await?;
    let mut tx = AuditedTransaction::begin(database.pool(), store).await?;
    let enqueued = Queue::on(&mut tx).store(store).enqueue_json(&job_type, &payload, &Value::Object(options)).await;
    let (job, outcome) = enqueued.map_err(as_usage_error)?;
    let (outcome, text) = describe(outcome);
    tx.commit(outcome, format!("job {}: {job_type}", job.id()), u64::from(outcome != "kept")).await?;
    database.close().await;
    if output.json { print::json(&json!({ "id": job.id(), "outcome": outcome })) } else { print::lines(&format!("{text} {}", job.id())) }
}

/// Fills in omitted options from the job type's code. The store has these defaults only after a worker with this type has started.
fn add_defaults(options: &mut Map<String, Value>, known: &Options) {
    // The SQL function treats null as an omitted option.
    options.retain(|_, value| !value.is_null());
    let mut add = |name: &str, value: Value| {
        options.entry(name).or_insert(value);
    };
    add("version", known.version.into());
    add("queue", known.queue.into());
    add("priority", known.priority.into());
    add("max_attempts", known.max_attempts.into());
    if let Some(expires) = known.expires.filter(|_| !options.contains_key("expires_at")) {
        options.entry("expires_in").or_insert_with(|| expires.as_secs_f64().into());
    }
}

/// Returns the outcome's name, and the message text that precedes the job id.
fn describe(outcome: EnqueueOutcome) -> (&'static str, &'static str) {
    match outcome {
        EnqueueOutcome::New => ("enqueued", "enqueued job"),
        EnqueueOutcome::Replaced => ("replaced", "replaced the payload of job"),
        EnqueueOutcome::Debounced => ("debounced", "postponed job"),
        // Matches `Kept` and outcomes added in later releases.
        _ => ("kept", "the uniqueness key is held by job"),
    }
}

/// Converts an error about an invalid payload or option to a usage error.
fn as_usage_error(error: Error) -> Problem {
    let code = match &error {
        Error::Database(sqlx::Error::Database(database)) => database.code().map(std::borrow::Cow::into_owned),
        _ => None,
    };
    // Class 22 contains data exceptions such as `invalid_parameter_value`. A payload that is too large raises 23514 (`check_violation`).
    match code.as_deref() {
        Some(code) if code.starts_with("22") || code == "23514" => Problem::usage(error),
        _ => error.into(),
    }
}
