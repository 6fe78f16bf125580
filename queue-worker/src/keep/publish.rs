//! Publishes the options of job types in the database, where SQL functions read them. The options are the queue, priority, retention,
//! expiry and maximum number of attempts.
//!
//! Each worker writes the options once, when it starts. If two releases have different options, the options of the worker that started
//! last are in effect.

use queue_core::{Store, options::Options};
use sqlx::PgConnection;

use crate::live::bounded;

/// Publishes the options of each job type. `types` has one entry for each name and alias of a job type.
pub(crate) async fn publish(connection: &mut PgConnection, store: Store, types: &[(&str, Options)]) -> sqlx::Result<()> {
    let names = || types.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let histories = types.iter().map(|(_, options)| options.retain.history().map(|history| history.as_secs_f64()));
    let kept = sqlx::query(store.sql(include_str!("../../sql/keep_types.sql"))).bind(names()).bind(histories.collect::<Vec<_>>());
    bounded(kept.execute(&mut *connection)).await?;
    let published = sqlx::query(store.sql(include_str!("../../sql/publish_types.sql")))
        .bind(names())
        .bind(types.iter().map(|(_, options)| options.queue).collect::<Vec<_>>())
        .bind(types.iter().map(|(_, options)| options.priority).collect::<Vec<_>>())
        .bind(types.iter().map(|(_, options)| options.max_attempts).collect::<Vec<_>>())
        .bind(types.iter().map(|(_, options)| options.expires.map(|time| time.as_secs_f64())).collect::<Vec<_>>());
    bounded(published.execute(connection)).await.map(drop)
}
