//! Tells those who wait for jobs that some are over.
//!
//! Beside the settle loop, not in its statements: a transaction that writes nothing notifies without holding the server's one lock for
//! notifications during a flush of its disk, and where nobody waits it costs a short look now and then.

use std::{sync::Arc, time::Duration};

use queue_core::Store;

use crate::{
    error::complain,
    live::{Bell, Link, bounded},
};

/// Between two notifications.
const WAITED_FOR: Duration = Duration::from_millis(2);

/// Between two looks for somebody who waits, when there was nobody: so late at most are those told who begin to wait.
const UNWAITED: Duration = Duration::from_millis(50);

/// After a failure: those who wait look by themselves meanwhile.
const PAUSE: Duration = Duration::from_secs(1);

/// Tells of every job that was ended, for ever.
pub(crate) async fn notify_waiters(mut link: Link, store: Store, bell: Arc<Bell>) {
    loop {
        bell.jobs_over().await;
        let pause = match notify_once(&mut link, store).await {
            Ok(true) => WAITED_FOR,
            Ok(false) => UNWAITED,
            Err(error) => {
                complain(&error, "cannot notify those who wait for jobs; they look by themselves");
                PAUSE
            }
        };
        // What ends meanwhile is told of after it.
        tokio::time::sleep(pause).await;
    }
}

/// Whether anybody waits.
async fn notify_once(link: &mut Link, store: Store) -> sqlx::Result<bool> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/tell.sql")));
    let told = bounded(statement.fetch_optional(link.get().await?)).await;
    Ok(link.note(told)?.is_some())
}
