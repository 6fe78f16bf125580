//! `requeue`, `discard`: each job by itself, so that one that is refused does not hold up the others; or all dead letters of a kind.

use std::process::ExitCode;

use queue_core::{JobId, Store};
use serde_json::json;
use sqlx::PgConnection;

use super::{
    args::Chosen,
    control::{Refused, told},
    open_store, print,
    problem::Problem,
    settings::Settings,
};
use crate::{error::Error, live::shutdown_signal, observe};

/// What is to be done.
#[derive(Clone, Copy)]
enum Act {
    Requeue,
    Discard,
}

impl Act {
    /// As a participle.
    fn done(self) -> &'static str {
        match self {
            Self::Requeue => "requeued",
            Self::Discard => "discarded",
        }
    }

    async fn on(self, connection: &mut PgConnection, store: Store, id: JobId) -> Result<(), Error> {
        match self {
            Self::Requeue => observe::requeue(connection, store, id).await,
            Self::Discard => observe::discard(connection, store, id).await,
        }
    }
}

/// The jobs named, or all dead letters of a filter, at this rate. A signal ends it after the batch that is on its way.
pub(super) async fn requeue(settings: &Settings, chosen: &Chosen, rate: Option<f64>) -> Result<ExitCode, Problem> {
    chosen.check(rate.is_some())?;
    if !chosen.all {
        return each(settings, Act::Requeue, &chosen.ids, chosen.output.json).await;
    }
    all(settings, Act::Requeue, chosen, rate).await
}

/// The jobs named, or all dead letters of a filter.
pub(super) async fn discard(settings: &Settings, chosen: &Chosen, yes: bool) -> Result<ExitCode, Problem> {
    chosen.check(yes)?;
    if !chosen.all {
        return each(settings, Act::Discard, &chosen.ids, chosen.output.json).await;
    }
    if !yes && !chosen.dry_run {
        return Err(Problem::usage(
            "`discard --all` deletes for good; say `--yes`, or `--dry-run` to see how many dead letters that would be",
        ));
    }
    all(settings, Act::Discard, chosen, None).await
}

async fn all(settings: &Settings, act: Act, chosen: &Chosen, rate: Option<f64>) -> Result<ExitCode, Problem> {
    let store = settings.store()?;
    let database = open_store(settings).await?;
    let mut connection = database.pool().acquire().await?;
    let filter = chosen.filter();
    let jobs = match act {
        _ if chosen.dry_run => observe::count_dead(&mut connection, store, &filter).await?,
        Act::Discard => observe::discard_all(&mut connection, store, &filter).await?,
        Act::Requeue => observe::requeue_at(&mut connection, store, &filter, rate, shutdown_signal()).await?,
    };
    drop(connection);
    database.close().await;
    if chosen.output.json {
        print::json(&json!({ if chosen.dry_run { "found" } else { act.done() }: jobs }))?;
    } else {
        print::lines(&format!("{}{} {jobs} dead letters", if chosen.dry_run { "not " } else { "" }, act.done()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// On each of the jobs. A failure of the database ends it; a refusal is said at the end.
async fn each(settings: &Settings, act: Act, ids: &[JobId], as_json: bool) -> Result<ExitCode, Problem> {
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
        print::json(&json!({ act.done(): done, "refused": Refused::all(&refused) }))?;
    } else if !done.is_empty() {
        print::lines(&done.iter().map(|id| format!("{} {id}", act.done())).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(told(refused))
}
