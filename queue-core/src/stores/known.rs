//! What a process knows of where tenants are. It may be old news.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, Utc};

/// What is known of tenants.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<Mutex<HashMap<String, (String, i64)>>>);

/// So many are known at once; when they are more, all are asked for anew.
const MOST: usize = 10_000;

/// As home has it.
#[derive(sqlx::FromRow)]
pub(super) struct Place {
    pub(super) store: String,
    pub(super) epoch: i64,
    pub(super) leaves: Option<String>,
    pub(super) is_fenced: bool,
    pub(super) moved_at: Option<DateTime<Utc>>,
}

impl Known {
    fn all(&self) -> MutexGuard<'_, HashMap<String, (String, i64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, key: &str) -> Option<(String, i64)> {
        self.all().get(key).cloned()
    }

    pub(super) fn put(&self, key: &str, place: &Place) {
        let mut all = self.all();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(key.to_owned(), (place.store.clone(), place.epoch));
    }

    /// It is not so any more.
    pub(super) fn forget(&self, key: &str) {
        self.all().remove(key);
    }
}
