//! Job lists for filters with few matches, read page by page within a time limit.

use std::time::{Duration, Instant};

use sqlx::PgConnection;

use super::{
    filter::Filter,
    list::{Page, query_page},
};
use crate::schema::Store;

/// Time limits of [`Jobs::list_patiently`](super::Jobs::list_patiently). After the applicable time limit, no further page is read.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Queue, operate::{Filter, Patience}};
/// use std::time::Duration;
///
/// let patience = Patience { none: Duration::from_secs(2), ..Patience::default() };
/// let filter = Filter::default().meta("tenant", "acme");
/// let page = Queue::new(pool).jobs().matching(&filter).list_patiently(patience).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time limit if some jobs were found, but fewer than requested. Default: 40 ms.
    pub some: Duration,
    /// Time limit if no job was found. Default: 500 ms.
    pub none: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { some: Duration::from_millis(40), none: Duration::from_millis(500) }
    }
}

pub(super) async fn collect_page(
    connection: &mut PgConnection,
    store: Store,
    mut filter: Filter,
    patience: Patience,
) -> sqlx::Result<Page> {
    let (started, limit) = (Instant::now(), filter.limit.clamp(1, Filter::MOST));
    let mut found = query_page(connection, store, &filter).await?;
    while let Some(next) = found.next {
        let missing = limit.saturating_sub(u32::try_from(found.jobs.len()).unwrap_or(u32::MAX));
        let time_limit = if found.jobs.is_empty() { patience.none } else { patience.some };
        if missing == 0 || started.elapsed() >= time_limit {
            break;
        }
        (filter.limit, filter.before) = (missing, Some(next));
        let more = query_page(connection, store, &filter).await?;
        found.next = more.next;
        found.jobs.extend(more.jobs);
    }
    Ok(found)
}
