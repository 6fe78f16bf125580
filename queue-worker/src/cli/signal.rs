//! `signal` command: sends a signal to a durable job, for example an approval.

use clap::Args;
use queue_core::{Error, JobId, JobRef, operate::SignalOutcome};
use serde_json::json;
use sqlx::PgConnection;

use super::{
    audit::AuditedTransaction,
    json_arg::parse_json,
    open::open_store,
    print,
    problem::Problem,
    settings::Settings,
    values::{OutputArgs, id},
};
use crate::{escape, program};

pub(super) const MANUAL: &str = "\
Examples:
  queue-worker signal 1879032461361152001 approved                           a signal without a payload
  queue-worker signal 1879032461361152001 approved --payload '{\"by\": \"Ada\"}'
  queue-worker signal 1879032461361152001 approved --payload @answer.json    from a file
  make-answer | queue-worker signal 1879032461361152001 approved --payload -

`queue-worker why ID` shows what a job waits for. A signal may be sent before the job waits for it. Each is received once, in the order
of sending. Exit code 3 if the job does not exist or is finished, or if this binary has its type and that is not durable.";

/// Suggested fix for a payload that is not JSON.
const NO_JSON: &str = "write a string in double quotes, as in '\"yes\"', or omit `--payload` for a signal without one";

#[derive(Args)]
pub(super) struct SignalArgs {
    /// Job id
    #[arg(value_parser = id)]
    id: JobId,
    /// Name of the signal, as in the job's code
    name: String,
    /// Payload: JSON, @FILE with JSON, or - for JSON on stdin
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Sends the signal and records it in the audit log.
pub(super) async fn signal(settings: &Settings, SignalArgs { id, name, payload, output }: SignalArgs) -> Result<(), Problem> {
    let payload = payload.as_deref().map(|payload| parse_json("payload", payload, NO_JSON)).transpose()?;
    let (database, store) = open_store(settings).await?;
    let mut tx = AuditedTransaction::begin(database.pool(), store).await?;
    let job = JobRef::from_id(id).in_store(store);
    let sent = job.signal(&mut *tx, &name, &payload).await.map_err(as_usage_error)?;
    // If the job type receives no signals, returning the error drops the transaction, which rolls back the signal.
    if sent == SignalOutcome::Sent
        && let Some(job_type) = type_without_signals(&mut tx, job).await?
    {
        return Err(Problem::refused(format!(
            "job {id} is of the type `{job_type}`, which is not durable and receives no signals; signal a job whose type has `#[job(durable)]`"
        )));
    }
    match sent {
        SignalOutcome::Sent => tx.commit("signalled", format!("job {id}: {name}"), 1).await?,
        SignalOutcome::Over => {
            return Err(Problem::refused(format!(
                "job {id} is finished and receives no signals; `queue-worker show {id}` shows how it ended"
            )));
        }
        _ => return Err(Error::NotFound { job: id }.into()),
    }
    database.close().await;
    if output.json { print::json(&json!({ "signalled": id, "name": name })) } else { print::lines(&sent_text(id, &name)) }
}

/// Returns the job type if it is linked into this binary and receives no signals. Otherwise returns `None`.
async fn type_without_signals(on: &mut PgConnection, job: JobRef) -> Result<Option<String>, Error> {
    Ok(Some(job.find_without_payload(on).await?.job_type).filter(|job_type| program::ignores_signals(job_type)))
}

fn sent_text(id: JobId, name: &str) -> String {
    format!("sent {} to {id}", escape::line(name))
}

/// Converts an error about an invalid name or payload to a usage error.
fn as_usage_error(error: Error) -> Problem {
    match error {
        Error::OutOfRange { .. } | Error::Signal { .. } => Problem::usage(error),
        error => error.into(),
    }
}
