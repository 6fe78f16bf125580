//! Warnings about served queues that receive no jobs, for example because of a misspelled name.

use std::collections::BTreeSet;

use queue_core::{Queue, Store, registry::Registry};
use sqlx::PgPool;

use crate::live::Config;

/// Warns about each served queue that has never received a job in any store. Default queues of registered job types are skipped.
pub(super) async fn warn_of_unused(config: &Config, registry: &Registry, stores: &[(&PgPool, Store)]) {
    let own: BTreeSet<&str> = registry.names().map(|(_, known)| known.options().queue).collect();
    for (queue, _) in config.queues.iter().filter(|(queue, _)| !own.contains(queue.as_str())) {
        let mut is_used = false;
        for (pool, store) in stores {
            // Database errors are ignored, because other checks report them.
            is_used = is_used || Queue::new(pool).store(*store).is_queue(queue).await.unwrap_or(false);
        }
        if !is_used {
            let of_types = own.iter().copied().collect::<Vec<_>>().join(", ");
            tracing::warn!(
                queue,
                of_types,
                "this queue gets no jobs: no registered job type uses it, and no job was ever enqueued into it; it is served nevertheless; check \
                 its name"
            );
        }
    }
}
