//! Warns of queues that get no jobs, such as a misspelt one.

use std::collections::BTreeSet;

use queue_core::{Registry, Store, operate};
use sqlx::PgPool;

use crate::live::Config;

/// Warns of each served queue that is not the default queue of a registered job type, and into which no job of these stores was ever
/// enqueued.
pub(super) async fn warn_of_unused(config: &Config, registry: &Registry, stores: &[(&PgPool, Store)]) {
    let own: BTreeSet<&str> = registry.names().map(|(_, known)| known.options().queue).collect();
    for (queue, _) in config.queues.iter().filter(|(queue, _)| !own.contains(queue.as_str())) {
        let mut is_used = false;
        for (pool, store) in stores {
            // Failures of a store are reported elsewhere.
            is_used = is_used || operate::is_queue(*pool, *store, queue).await.unwrap_or(false);
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
