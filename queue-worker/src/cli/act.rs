//! `requeue`, `cancel`, `discard`: each job by itself, so that one that is refused does not hold up the others.

use std::process::ExitCode;

use queue_core::{JobId, Store};
use serde::Serialize;
use serde_json::json;
use sqlx::PgConnection;

use super::{
    args::Chosen,
    open_store, print,
    problem::{Problem, REFUSED},
    settings::Settings,
};
use crate::{error::Error, observe};

/// What is to be done.
#[derive(Clone, Copy)]
pub(super) enum Act {
    Requeue,
    Cancel,
    Discard,
}

impl Act {
    /// As a participle.
    fn done(self) -> &'static str {
        match self {
            Self::Requeue => "requeued",
            Self::Cancel => "cancelled",
            Self::Discard => "discarded",
        }
    }

    async fn on(self, connection: &mut PgConnection, store: Store, id: JobId) -> Result<(), Error> {
        match self {
            Self::Requeue => observe::requeue(connection, store, id).await,
            Self::Cancel => observe::cancel(connection, store, id).await,
            Self::Discard => observe::discard(connection, store, id).await,
        }
    }
}

/// A job that was left as it is, as `--json` shows it.
#[derive(Serialize)]
struct Refused {
    id: JobId,
    reason: String,
}

/// On the jobs named, or on all dead letters of a filter.
pub(super) async fn chosen(settings: &Settings, act: Act, chosen: &Chosen) -> Result<ExitCode, Problem> {
    if !chosen.all {
        return each(settings, act, &chosen.ids, chosen.output.json).await;
    }
    let store = settings.store()?;
    let database = open_store(settings).await?;
    let mut connection = database.pool().acquire().await?;
    let filter = chosen.filter();
    let jobs = match act {
        Act::Discard => observe::discard_all(&mut connection, store, &filter).await?,
        _ => observe::requeue_all(&mut connection, store, &filter).await?,
    };
    drop(connection);
    database.close().await;
    if chosen.output.json {
        print::json(&json!({ act.done(): jobs }))?;
    } else {
        print::lines(&format!("{} {jobs} dead letters", act.done()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// On each of the jobs. A failure of the database ends it; a refusal is said at the end.
pub(super) async fn each(settings: &Settings, act: Act, ids: &[JobId], as_json: bool) -> Result<ExitCode, Problem> {
    let store = settings.store()?;
    let database = open_store(settings).await?;
    let mut connection = database.pool().acquire().await?;
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for &id in ids {
        match act.on(&mut connection, store, id).await {
            Ok(()) => done.push(id),
            Err(error @ (Error::NotFound(_) | Error::WrongState { .. })) => refused.push((id, error)),
            Err(error) => return Err(error.into()),
        }
    }
    drop(connection);
    database.close().await;
    if as_json {
        let refused: Vec<Refused> = refused.iter().map(|(id, error)| Refused { id: *id, reason: error.to_string() }).collect();
        print::json(&json!({ act.done(): done, "refused": refused }))?;
    } else if !done.is_empty() {
        let done: Vec<String> = done.iter().map(|id| format!("{} {id}", act.done())).collect();
        print::lines(&done.join("\n"))?;
    }
    let code = if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) };
    for (_, error) in refused {
        Problem::from(error).report();
    }
    Ok(code)
}
