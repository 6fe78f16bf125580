//! Job lists for filters with few matches, read page by page within a time limit.

use std::time::{Duration, Instant};

use sqlx::PgConnection;

use super::{
    filter::Filter,
    list::{Page, query_page},
    rejection::explain,
};
use crate::{
    connect::IntoConnection,
    error::Error,
    schema::{Session, Store},
};

/// Time limits of [`list_patiently`]. After the applicable time limit, no further page is read.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, operate::{self, Filter, Patience}};
/// use std::time::Duration;
///
/// let patience = Patience { none: Duration::from_secs(2), ..Patience::default() };
/// let filter = Filter::default().meta("tenant", "acme");
/// let page = operate::list_patiently(pool, Store::default(), &filter, patience).await?;
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

/// Lists jobs like [`list`](super::list), but reads further rows until [`Filter::limit`] jobs are found or the time limit is reached.
///
/// The number of jobs in a page therefore depends on how fast jobs are found. A page may be short or empty although [`Page::next`] shows
/// that there may be more jobs.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::operate::{self, Filter, Patience};
///
/// let rare = Filter::default().meta("tenant", "acme");
/// let page = operate::list_patiently(&pool, queue_core::Store::default(), &rare, Patience::default()).await?;
/// println!("{} jobs{}", page.jobs.len(), if page.next.is_some() { ", and there may be more" } else { "" });
/// # Ok(()) }
/// ```
///
/// # Errors
/// Returns the errors of [`list`](super::list).
pub async fn list_patiently(on: impl IntoConnection<'_>, store: Store, filter: &Filter, patience: Patience) -> Result<Page, Error> {
    filter.check()?;
    let mut session = Session::begin_read_only(on.into_connection()).await?;
    let found = collect_page(session.connection(), store, filter.clone(), patience).await;
    session.end(found).await.map_err(|error| explain(error, store))
}

async fn collect_page(connection: &mut PgConnection, store: Store, mut filter: Filter, patience: Patience) -> sqlx::Result<Page> {
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
