//! What handlers share, by its type.

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    sync::Arc,
};

use crate::define::StateKey;

/// One value a type.
#[doc(hidden)]
#[derive(Clone, Default)]
pub struct States(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl States {
    /// Keeps `value`, in place of an earlier one of its type.
    pub fn put<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// The value of type `T`.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// The value of type `T`, which a handler asks for.
    ///
    /// # Panics
    /// When there is none.
    pub(super) fn known<T: Send + Sync + 'static>(&self) -> &T {
        self.get().unwrap_or_else(|| {
            panic!("no state `{0}` in this worker: give it with `Worker::state`, and name it in `#[job(state({0}))]`", type_name::<T>())
        })
    }

    /// Whether there is a value of the type that `key` names.
    pub fn has(&self, key: StateKey) -> bool {
        self.0.contains_key(&key.id())
    }
}
