//! Checks the names of queues and job types, because a misspelt name silently matches nothing.

use queue_core::{Error, Queue, Store, check_name, operate::Filter, registry::Registry};
use sqlx::PgPool;

use super::problem::{Problem, warn};
use crate::live::Database;

/// Warns on stderr if the store does not know `queue`. Returns an error if the name is invalid, because an invalid name must not be
/// printed.
pub(super) async fn check_queue(database: &Database, store: Store, queue: Option<&str>) -> Result<(), Problem> {
    check_filter(database, store, &Filter { queue: queue.map(str::to_owned), ..Filter::default() }).await
}

/// Warns on stderr if neither the store nor this binary knows `job_type`.
pub(super) async fn check_type(database: &Database, store: Store, job_type: Option<&str>) -> Result<(), Problem> {
    check_filter(database, store, &job_type.into_iter().fold(Filter::default(), Filter::job_type)).await
}

/// Rejects a job type that neither the store nor this binary knows, because probably no worker would run the job.
pub(super) async fn check_type_of_new_job(database: &Database, store: Store, job_type: &str) -> Result<(), Problem> {
    check_name("job type name", job_type)?;
    let registry = Registry::linked().unwrap_or_default();
    let mut known = Queue::new(database.pool()).store(store).job_types().await?;
    known.extend(registry.names().map(|(name, _)| name.to_owned()));
    if known.iter().any(|name| name == job_type) {
        return Ok(());
    }
    let fix = suggest_name(job_type, known).unwrap_or_else(|| "this binary has no job types".to_owned());
    Err(Problem::usage(format!(
        "no job of the type `{job_type}` has ever been enqueued, and this binary does not have it (`--new-type` enqueues it anyway); {fix}"
    )))
}

/// Warns on stderr about an unknown queue or job type in a filter. Returns an error if a name is invalid.
pub(super) async fn check_filter(database: &Database, store: Store, filter: &Filter) -> Result<(), Problem> {
    check_names(filter)?;
    let unknown = UnknownNames::load(database.pool(), store, filter).await?;
    warn_of_unknown_names(filter, &[&unknown]);
    Ok(())
}

/// Rejects invalid names of queues and job types.
pub(super) fn check_names(filter: &Filter) -> Result<(), Error> {
    filter.queue.iter().try_for_each(|queue| check_name("queue name", queue))?;
    filter.job_types.iter().try_for_each(|job_type| check_name("job type name", job_type))
}

/// Result of checking whether a store knows the names in a filter. A field is `None` if its name is known or not part of the filter. If
/// the name is unknown, the field contains the names that the store knows.
pub(super) struct UnknownNames {
    queues: Option<Vec<String>>,
    job_types: Option<Vec<String>>,
}

impl UnknownNames {
    pub(super) async fn load(pool: &PgPool, store: Store, filter: &Filter) -> Result<Self, Error> {
        let queues = match &filter.queue {
            Some(queue) if !Queue::new(pool).store(store).is_queue(queue).await? => Some(Queue::new(pool).store(store).queues().await?),
            _ => None,
        };
        let registry = Registry::linked().unwrap_or_default();
        let job_types = match filter.job_types.first() {
            Some(job_type) if registry.get(job_type).is_none() => Some(Queue::new(pool).store(store).job_types().await?),
            _ => None,
        };
        let job_types = job_types.filter(|known| !filter.job_types.iter().any(|job_type| known.contains(job_type)));
        Ok(Self { queues, job_types })
    }
}

/// Warns on stderr about a queue or job type in the filter that none of the stores knows.
pub(super) fn warn_of_unknown_names(filter: &Filter, of: &[&UnknownNames]) {
    let all =
        |of: Option<Vec<&Vec<String>>>| of.filter(|known| !known.is_empty()).map(|known| known.into_iter().flatten().cloned().collect());
    let queues: Option<Vec<String>> = all(of.iter().map(|unknown| unknown.queues.as_ref()).collect());
    if let (Some(queue), Some(known)) = (&filter.queue, queues) {
        warn(&format!("no job has ever been enqueued into the queue `{queue}`; {}", fix(queue, known)));
    }
    let job_types: Option<Vec<String>> = all(of.iter().map(|unknown| unknown.job_types.as_ref()).collect());
    if let (Some(job_type), Some(known)) = (filter.job_types.first(), job_types) {
        warn(&format!("no job of the type `{job_type}` has ever been enqueued; {}", fix(job_type, known)));
    }
}

/// Maximum number of known names listed in a message.
const SHOWN_NAMES: usize = 10;

fn fix(name: &str, known: Vec<String>) -> String {
    suggest_name(name, known).unwrap_or_else(|| "no job has ever been enqueued into this store".to_owned())
}

/// Returns a suggestion of the most similar known name, or a list of the known names if none is similar. Returns `None` if no name is
/// known.
pub(super) fn suggest_name(name: &str, mut known: Vec<String>) -> Option<String> {
    known.sort();
    known.dedup();
    let near = known.iter().map(|known| (strsim::damerau_levenshtein(name, known), known)).min().filter(|(edits, _)| *edits <= 2);
    match (near, known.as_slice()) {
        (Some((_, near)), _) => Some(format!("did you mean `{near}`?")),
        (None, []) => None,
        (None, known) => {
            let more = if known.len() > SHOWN_NAMES { format!(" and {} more", known.len() - SHOWN_NAMES) } else { String::new() };
            Some(format!("there are {}{more}", known.iter().take(SHOWN_NAMES).cloned().collect::<Vec<_>>().join(", ")))
        }
    }
}
