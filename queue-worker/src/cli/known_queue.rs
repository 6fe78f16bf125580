//! Queues and job types that are named and that there are none of: a misspelt name would do nothing, or do it to nobody.

use queue_core::{Error, Registry, Store, check_name, operate};
use sqlx::PgPool;

use super::problem::{Problem, warn};
use crate::live::Database;

/// Says so on stderr if this queue is unknown to the store. What no queue can be called is refused: it is not to be shown as it is.
pub(super) async fn check_queue(database: &Database, store: Store, queue: Option<&str>) -> Result<(), Problem> {
    let Some(queue) = queue else { return Ok(()) };
    check_name("queue name", queue)?;
    if let Some(known) = queues_but(database.pool(), store, queue).await? {
        tell_unknown(queue, &known);
    }
    Ok(())
}

/// The queues of a store that does not know this one.
pub(super) async fn queues_but(pool: &PgPool, store: Store, queue: &str) -> Result<Option<Vec<String>>, Error> {
    if operate::is_queue(pool, store, queue).await? { Ok(None) } else { operate::queues(pool, store).await.map(Some) }
}

/// Says on stderr that there is no such queue among those that there are.
pub(super) fn tell_unknown(queue: &str, known: &[String]) {
    warn(&format!("no job was ever enqueued into the queue `{queue}`; {}", fix(queue, known)));
}

/// Says so on stderr if this job type is unknown to the store and to this binary.
pub(super) async fn check_type(database: &Database, store: Store, job_type: Option<&str>) -> Result<(), Problem> {
    let Some(job_type) = job_type else { return Ok(()) };
    check_name("job type name", job_type)?;
    let known = operate::job_types(database.pool(), store).await?;
    if !known.iter().any(|known| known == job_type) && Registry::linked().unwrap_or_default().get(job_type).is_none() {
        warn(&format!("no job of the type `{job_type}` was ever enqueued; {}", fix(job_type, &known)));
    }
    Ok(())
}

/// So many names are shown.
const SHOWN: usize = 10;

fn fix(name: &str, known: &[String]) -> String {
    let near = known.iter().map(|known| (strsim::damerau_levenshtein(name, known), known)).min().filter(|(edits, _)| *edits <= 2);
    match (near, known) {
        (Some((_, near)), _) => format!("did you mean `{near}`?"),
        (None, []) => "nothing was ever enqueued into this store".to_owned(),
        (None, known) => {
            let more = if known.len() > SHOWN { format!(" and {} more", known.len() - SHOWN) } else { String::new() };
            format!("there are {}{more}", known.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", "))
        }
    }
}
