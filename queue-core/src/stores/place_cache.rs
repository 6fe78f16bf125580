//! Cache of the tenants' assignments to stores. Cache entries may be out of date.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, Utc};

/// Cached store name and epoch of each tenant, by the tenant's key.
#[derive(Clone, Default)]
pub(super) struct PlaceCache(Arc<Mutex<HashMap<String, (String, i64)>>>);

/// Maximum number of cached tenants. The cache is cleared when the maximum is reached.
const MAX_ENTRIES: usize = 10_000;

/// Row of the home database that assigns a tenant to a store.
#[derive(sqlx::FromRow)]
pub(super) struct PlaceRow {
    pub(super) store: String,
    pub(super) epoch: i64,
    pub(super) leaves: Option<String>,
    pub(super) is_fenced: bool,
    pub(super) moved_at: Option<DateTime<Utc>>,
}

impl PlaceRow {
    /// Returns the store into which the tenant's jobs are enqueued, and the tenant's epoch in that store. A moving tenant stays in the old
    /// store until the move has fenced that store.
    pub(super) fn current(&self) -> (&str, i64) {
        match &self.leaves {
            Some(old) if !self.is_fenced => (old, self.epoch - 1),
            _ => (&self.store, self.epoch),
        }
    }
}

impl PlaceCache {
    fn all(&self) -> MutexGuard<'_, HashMap<String, (String, i64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, key: &str) -> Option<(String, i64)> {
        self.all().get(key).cloned()
    }

    pub(super) fn put(&self, key: &str, place: &PlaceRow) {
        let mut all = self.all();
        if all.len() >= MAX_ENTRIES {
            all.clear();
        }
        let (store, epoch) = place.current();
        all.insert(key.to_owned(), (store.to_owned(), epoch));
    }

    /// Removes the cache entry of a tenant.
    pub(super) fn forget(&self, key: &str) {
        self.all().remove(key);
    }
}
