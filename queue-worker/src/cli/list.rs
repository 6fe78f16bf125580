//! `list`: jobs in a table, the newest first.

use queue_core::{JobRecord, JobState, Store};
use sqlx::PgConnection;

use super::{args::List, inert, open_store, print, problem::Problem, settings::Settings};
use crate::observe::{self, Filter, Page};

pub(super) async fn list(settings: &Settings, asked: &List) -> Result<(), Problem> {
    let store = settings.store()?;
    let database = open_store(settings).await?;
    let mut connection = database.pool().acquire().await?;
    let page = gather(&mut connection, store, asked.filter()).await?;
    drop(connection);
    database.close().await;
    if asked.output.json {
        return print::json(&page);
    }
    let text = match page.jobs.as_slice() {
        [] => "no jobs".to_owned(),
        jobs => print::table(["id", "state", "queue", "type", "attempts", "enqueued", "note"], jobs.iter().map(row)),
    };
    let older = page.next.map_or_else(String::new, |next| format!("\n\nolder jobs: --before {next}"));
    print::lines(&(text + &older))
}

/// So many pages are looked through for jobs that are rare; then the user decides.
const PAGES: usize = 10;

/// A full page, if it can be had with a bounded effort.
async fn gather(connection: &mut PgConnection, store: Store, mut filter: Filter) -> Result<Page, Problem> {
    let mut page = observe::list(connection, store, &filter).await?;
    for _ in 1..PAGES {
        let found = page.jobs.len() as u32;
        let Some(next) = page.next.filter(|_| found < filter.limit.min(Filter::MOST)) else { break };
        filter.limit -= found;
        filter.before = Some(next);
        let more = observe::list(connection, store, &filter).await?;
        page.jobs.extend(more.jobs);
        page.next = more.next;
    }
    Ok(page)
}

fn row(job: &JobRecord) -> [String; 7] {
    let error = || job.error.as_deref().map(|error| inert::short(error, 60)).unwrap_or_default();
    let note = match job.state {
        JobState::Scheduled => format!("due {} {}", job.run_at.map(print::time).unwrap_or_default(), error()),
        JobState::Running => job.worker.map(|worker| format!("by {worker}")).unwrap_or_default(),
        _ => error(),
    };
    [
        job.id.to_string(),
        job.state.to_string(),
        job.queue.clone(),
        job.job_type.clone(),
        format!("{}/{}", job.attempts, job.max_attempts),
        print::time(job.enqueued_at),
        note,
    ]
}
