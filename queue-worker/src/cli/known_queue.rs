//! Queues and job types that are named and that there are none of: a misspelt name would do nothing, or do it to nobody.

use queue_core::{
    Error, Registry, Store, check_name,
    operate::{self, Filter},
};
use sqlx::PgPool;

use super::problem::{Problem, warn};
use crate::live::Database;

/// Says so on stderr if this queue is unknown to the store. What no queue can be called is refused: it is not to be shown as it is.
pub(super) async fn check_queue(database: &Database, store: Store, queue: Option<&str>) -> Result<(), Problem> {
    check_filter(database, store, &Filter { queue: queue.map(str::to_owned), ..Filter::default() }).await
}

/// Says so on stderr if this job type is unknown to the store and to this binary.
pub(super) async fn check_type(database: &Database, store: Store, job_type: Option<&str>) -> Result<(), Problem> {
    check_filter(database, store, &job_type.into_iter().fold(Filter::default(), Filter::job_type)).await
}

/// The same of a filter's queue and of its job type.
pub(super) async fn check_filter(database: &Database, store: Store, filter: &Filter) -> Result<(), Problem> {
    check_names(filter)?;
    let unknown = Unknown::to(database.pool(), store, filter).await?;
    tell_unknown(filter, &[&unknown]);
    Ok(())
}

/// Refuses what no queue and no job type can be called.
pub(super) fn check_names(filter: &Filter) -> Result<(), Error> {
    filter.queue.iter().try_for_each(|queue| check_name("queue name", queue))?;
    filter.job_types.iter().try_for_each(|job_type| check_name("job type name", job_type))
}

/// Of a filter's names those that a store does not know: the names that it knows instead.
pub(super) struct Unknown {
    queues: Option<Vec<String>>,
    job_types: Option<Vec<String>>,
}

impl Unknown {
    pub(super) async fn to(pool: &PgPool, store: Store, filter: &Filter) -> Result<Self, Error> {
        let queues = match &filter.queue {
            Some(queue) if !operate::is_queue(pool, store, queue).await? => Some(operate::queues(pool, store).await?),
            _ => None,
        };
        let registry = Registry::linked().unwrap_or_default();
        let job_types = match filter.job_types.first() {
            Some(job_type) if registry.get(job_type).is_none() => Some(operate::job_types(pool, store).await?),
            _ => None,
        };
        let job_types = job_types.filter(|known| !filter.job_types.iter().any(|job_type| known.contains(job_type)));
        Ok(Self { queues, job_types })
    }
}

/// Says on stderr which of a filter's names none of these stores knows.
pub(super) fn tell_unknown(filter: &Filter, of: &[&Unknown]) {
    let all =
        |of: Option<Vec<&Vec<String>>>| of.filter(|known| !known.is_empty()).map(|known| known.into_iter().flatten().cloned().collect());
    let queues: Option<Vec<String>> = all(of.iter().map(|unknown| unknown.queues.as_ref()).collect());
    if let (Some(queue), Some(known)) = (&filter.queue, queues) {
        warn(&format!("no job was ever enqueued into the queue `{queue}`; {}", fix(queue, known)));
    }
    let job_types: Option<Vec<String>> = all(of.iter().map(|unknown| unknown.job_types.as_ref()).collect());
    if let (Some(job_type), Some(known)) = (filter.job_types.first(), job_types) {
        warn(&format!("no job of the type `{job_type}` was ever enqueued; {}", fix(job_type, known)));
    }
}

/// So many names are shown.
const SHOWN: usize = 10;

fn fix(name: &str, known: Vec<String>) -> String {
    near(name, known).unwrap_or_else(|| "nothing was ever enqueued into this store".to_owned())
}

/// The name that may have been meant, or else those that there are.
pub(super) fn near(name: &str, mut known: Vec<String>) -> Option<String> {
    known.sort();
    known.dedup();
    let near = known.iter().map(|known| (strsim::damerau_levenshtein(name, known), known)).min().filter(|(edits, _)| *edits <= 2);
    match (near, known.as_slice()) {
        (Some((_, near)), _) => Some(format!("did you mean `{near}`?")),
        (None, []) => None,
        (None, known) => {
            let more = if known.len() > SHOWN { format!(" and {} more", known.len() - SHOWN) } else { String::new() };
            Some(format!("there are {}{more}", known.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ")))
        }
    }
}
