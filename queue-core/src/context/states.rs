//! What handlers share, by its type.

use std::{
    any::{Any, TypeId},
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

    /// Whether there is a value of the type that `key` names.
    pub fn has(&self, key: StateKey) -> bool {
        self.0.contains_key(&key.id())
    }
}
