//! A list of jobs that may be rare: looked for page after page, within a bound.

use std::time::{Duration, Instant};

use sqlx::PgConnection;

use super::{
    filter::Filter,
    list::{Page, page},
    refusal::explain,
};
use crate::{
    connect::IntoConnection,
    error::Error,
    schema::{Session, Store},
};

/// How long [`list_patiently`] begins further looks at the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// While some jobs were found, but fewer than asked for. Default: 40 ms.
    pub some: Duration,
    /// While none was found. Default: 500 ms.
    pub none: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { some: Duration::from_millis(40), none: Duration::from_millis(500) }
    }
}

/// As [`list`](super::list), but goes on past the rows that one page looks at, until there are as many jobs as [`Filter::limit`] says or patience ends.
///
/// How many jobs a page has then hangs on how quickly they are found: it may be short, even empty, while [`Page::next`] says that there may be more.
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
/// As [`list`](super::list).
pub async fn list_patiently(on: impl IntoConnection<'_>, store: Store, filter: &Filter, patience: Patience) -> Result<Page, Error> {
    filter.check()?;
    let mut session = Session::reading(on.into_connection()).await?;
    let found = gather(session.connection(), store, filter.clone(), patience).await;
    session.end(found).await.map_err(|error| explain(error, store))
}

async fn gather(connection: &mut PgConnection, store: Store, mut filter: Filter, patience: Patience) -> sqlx::Result<Page> {
    let (began, wanted) = (Instant::now(), filter.limit.clamp(1, Filter::MOST));
    let mut found = page(connection, store, &filter).await?;
    while let Some(next) = found.next {
        let missing = wanted.saturating_sub(u32::try_from(found.jobs.len()).unwrap_or(u32::MAX));
        let lasts = if found.jobs.is_empty() { patience.none } else { patience.some };
        if missing == 0 || began.elapsed() >= lasts {
            break;
        }
        (filter.limit, filter.before) = (missing, Some(next));
        let more = page(connection, store, &filter).await?;
        found.next = more.next;
        found.jobs.extend(more.jobs);
    }
    Ok(found)
}
