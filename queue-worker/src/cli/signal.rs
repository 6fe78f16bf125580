//! Sends a signal to a durable job, as whoever waits for an answer of a person needs it.

use std::{
    fs::File,
    io::{Read, stdin},
};

use clap::Args;
use queue_core::{Error, JobId, JobRef, operate::Signalled};
use serde_json::{json, value::RawValue};
use sqlx::PgConnection;

use super::{
    noted::Noted,
    open::open_store,
    print,
    problem::Problem,
    settings::Settings,
    values::{Output, id},
};
use crate::{inert, program};

pub(super) const MANUAL: &str = "\
Examples:
  queue-worker signal 1879032461361152001 approved                           a signal that says nothing more
  queue-worker signal 1879032461361152001 approved --payload '{\"by\": \"Ada\"}'
  queue-worker signal 1879032461361152001 approved --payload @answer.json    from a file
  make-answer | queue-worker signal 1879032461361152001 approved --payload -

`queue-worker why ID` says what a job waits for. A signal may come before the job asks for it; each is received once, in the order in which they were
sent. Exit code 3 if there is no such job, it is over, or this binary has its type and that is not durable.";

/// No more of a file is read: it is far above the most that a payload has.
const LONGEST: u64 = 4 * 1024 * 1024;

#[derive(Args)]
pub(super) struct SignalArgs {
    /// The job's id
    #[arg(value_parser = id)]
    id: JobId,
    /// The signal's name, as the job asks for it
    name: String,
    /// What it says: JSON, @FILE with JSON, or - for JSON on stdin
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Sends it, and notes that.
pub(super) async fn signal(settings: &Settings, SignalArgs { id, name, payload, output }: SignalArgs) -> Result<(), Problem> {
    let payload = payload.as_deref().map(said).transpose()?;
    let (database, store) = open_store(settings).await?;
    let mut noted = Noted::begin(database.pool(), store).await?;
    let job = JobRef::from_id(id).in_store(store);
    let sent = job.signal(&mut *noted, &name, &payload).await.map_err(problem)?;
    // Rolled back with the transaction.
    if sent == Signalled::Sent
        && let Some(job_type) = deaf(&mut noted, job).await?
    {
        return Err(Problem::refused(format!(
            "job {id} is of the type `{job_type}`, which is not durable and receives no signals; signal a job whose type has `#[job(durable)]`"
        )));
    }
    match sent {
        Signalled::Sent => noted.commit("signalled", format!("job {id}: {name}"), 1).await?,
        Signalled::Over => {
            return Err(Problem::refused(format!(
                "job {id} is finished and receives no signals; `queue-worker show {id}` shows how it ended"
            )));
        }
        _ => return Err(Error::NotFound { job: id }.into()),
    }
    database.close().await;
    if output.json { print::json(&json!({ "signalled": id, "name": name })) } else { print::lines(&told(id, &name)) }
}

/// The job's type, if that is known to receive no signals.
async fn deaf(on: &mut PgConnection, job: JobRef) -> Result<Option<String>, Error> {
    Ok(Some(job.find_without_payload(on).await?.job_type).filter(|job_type| program::ignores_signals(job_type)))
}

fn told(id: JobId, name: &str) -> String {
    format!("sent {} to {id}", inert::line(name))
}

/// A name or a payload that cannot be is a mistake of whoever typed it.
fn problem(error: Error) -> Problem {
    match error {
        Error::OutOfRange { .. } | Error::Signal { .. } => Problem::usage(error),
        error => error.into(),
    }
}

/// The JSON itself, of a file, or of stdin. What is wrong with it is said without a word of it.
fn said(payload: &str) -> Result<Box<RawValue>, Problem> {
    let text = match payload.strip_prefix('@') {
        Some(path) => read(File::open(path), &format!("the file of the payload, {path},"))?,
        None if payload == "-" => read(Ok(stdin().lock()), "the payload on stdin")?,
        None => payload.to_owned(),
    };
    if text.trim().is_empty() {
        return Err(Problem::usage("the payload is empty; give JSON, or leave out `--payload` for a signal without one"));
    }
    RawValue::from_string(text.trim().to_owned()).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Problem::usage(format!(
            "the payload is no JSON, at line {line}, column {column}; a text stands in double quotes: --payload '\"yes\"'"
        ))
    })
}

fn read(from: std::io::Result<impl Read>, what: &str) -> Result<String, Problem> {
    let mut text = String::new();
    let read = from.and_then(|from| from.take(LONGEST).read_to_string(&mut text));
    read.map_err(|error| Problem::usage(format!("{what} cannot be read: {error}")))?;
    Ok(text)
}
