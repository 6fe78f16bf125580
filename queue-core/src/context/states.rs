//! State shared by all handlers of a worker, one value per type.

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    sync::Arc,
};

use crate::define::StateKey;

/// Map with one value per type.
#[doc(hidden)]
#[derive(Clone, Default)]
pub struct States(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl States {
    /// Stores `value`, replacing any earlier value of the same type.
    pub fn put<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// Returns the value of type `T`, or `None` if there is no value of that type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// Returns the value of type `T`.
    ///
    /// # Panics
    /// Panics if the worker has no value of type `T`.
    pub(super) fn expect<T: Send + Sync + 'static>(&self) -> &T {
        self.get().unwrap_or_else(|| {
            panic!(
                "this worker has no state `{0}`: add `state = function` to `main!(..)` or call `Worker::state`, and list the type in \
                 `#[handler(state({0}))]` or `#[job(state({0}))]`",
                type_name::<T>()
            )
        })
    }

    /// Returns whether the map has a value of the type that `key` identifies.
    pub fn has(&self, key: StateKey) -> bool {
        self.0.contains_key(&key.id())
    }
}
