//! `enqueue` command: enqueues a job by its type's name.

use clap::Args;
use queue_core::{
    EnqueueOutcome, Error, Queue,
    registry::{Registration, Registry},
};
use serde_json::{Value, json};

use super::{
    json_arg::parse_json, name_check::check_type, open::open_store, print, problem::Problem, settings::Settings, values::OutputArgs,
};

pub(super) const MANUAL: &str = "\
Examples:
  queue-worker enqueue send_email '{\"to\": \"ada@example.org\"}'
  queue-worker enqueue send_email @email.json --options '{\"queue\": \"bulk\", \"after\": \"10 minutes\"}'
  queue-worker enqueue nightly_report null --options '{\"unique_key\": \"2026-11-30\"}'

The options are those of the SQL function `queue.enqueue`: queue, priority, max_attempts, run_at, after, expires_at, expires_in, key,
key_policy, fair, unique_key, unique_while, on_conflict, meta and version. Without an option the defaults apply that workers have published
for the type. Keys that the type's code computes from the payload are not set; give them as options.";

#[derive(Args)]
pub(super) struct EnqueueArgs {
    /// Job type, by its stored name
    #[arg(value_name = "TYPE")]
    job_type: String,
    /// Payload: JSON, @FILE with JSON, or - for JSON on stdin
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    payload: String,
    /// Options of the enqueue, as a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    options: String,
    #[command(flatten)]
    output: OutputArgs,
}

/// Enqueues the job. The version of the payload defaults to the version of this binary, if it has the type.
pub(super) async fn enqueue(settings: &Settings, args: EnqueueArgs) -> Result<(), Problem> {
    let EnqueueArgs { job_type, payload, options, output } = args;
    let payload = parse_json("payload", &payload)?;
    let mut options: Value = parse_json("value of --options", &options)?.get().parse().map_err(Problem::usage)?;
    let Some(given) = options.as_object_mut() else {
        return Err(Problem::usage("--options takes a JSON object, such as '{\"queue\": \"bulk\"}'"));
    };
    let registry = Registry::linked().unwrap_or_default();
    let known = registry.get(&job_type).map(Registration::options);
    if known.is_some_and(|known| known.seal.is_some()) {
        return Err(Problem::refused(format!(
            "the payloads of `{job_type}` are encrypted, and this command would store the payload as clear text; enqueue it by a program"
        )));
    }
    if let Some(known) = known.filter(|known| known.version > 1) {
        given.entry("version").or_insert_with(|| known.version.into());
    }
    let (database, store) = open_store(settings).await?;
    check_type(&database, store, Some(&job_type)).await?;
    let (job, outcome) =
        Queue::new(database.pool()).store(store).enqueue_json(&job_type, &payload, &options).await.map_err(as_usage_error)?;
    database.close().await;
    let (outcome, text) = describe(outcome);
    if output.json { print::json(&json!({ "id": job.id(), "outcome": outcome })) } else { print::lines(&format!("{text} {}", job.id())) }
}

/// Returns the name of the outcome, and the text before the job's id.
fn describe(outcome: EnqueueOutcome) -> (&'static str, &'static str) {
    match outcome {
        EnqueueOutcome::New => ("enqueued", "enqueued job"),
        EnqueueOutcome::Replaced => ("replaced", "replaced the payload of job"),
        EnqueueOutcome::Debounced => ("debounced", "postponed job"),
        // The outcome `Kept`, and outcomes of later releases.
        _ => ("kept", "the uniqueness key is held by job"),
    }
}

/// Converts an error about an invalid payload or option to a usage error.
fn as_usage_error(error: Error) -> Problem {
    let code = match &error {
        Error::Database(sqlx::Error::Database(database)) => database.code().map(std::borrow::Cow::into_owned),
        _ => None,
    };
    // The class of data exceptions, such as `invalid_parameter_value`, and `check_violation` for a payload that is too large.
    match code.as_deref() {
        Some(code) if code.starts_with("22") || code == "23514" => Problem::usage(error),
        _ => error.into(),
    }
}
