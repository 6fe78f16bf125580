//! Queues that are named and that there are none of: a misspelt name would do nothing, or do it to nobody.

use queue_core::{Store, check_name, operate};

use super::problem::{Problem, warn};
use crate::live::Database;

/// Says so on stderr if this queue is unknown to the store. What no queue can be called is refused: it is not to be shown as it is.
pub(super) async fn check_queue(database: &Database, store: Store, queue: Option<&str>) -> Result<(), Problem> {
    let Some(queue) = queue else { return Ok(()) };
    check_name("queue name", queue)?;
    let known = operate::queues(database.pool(), store).await?;
    if !known.iter().any(|known| known == queue) {
        warn(&unknown(queue, &known));
    }
    Ok(())
}

/// So many names are shown.
const SHOWN: usize = 10;

fn unknown(queue: &str, known: &[String]) -> String {
    let near = known.iter().map(|known| (strsim::damerau_levenshtein(queue, known), known)).min().filter(|(edits, _)| *edits <= 2);
    let fix = match (near, known) {
        (Some((_, near)), _) => format!("did you mean `{near}`?"),
        (None, []) => "nothing was ever enqueued into this store".to_owned(),
        (None, known) => {
            let more = if known.len() > SHOWN { format!(" and {} more", known.len() - SHOWN) } else { String::new() };
            format!("there are {}{more}", known.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", "))
        }
    };
    format!("no job was ever enqueued into the queue `{queue}`; {fix}")
}
