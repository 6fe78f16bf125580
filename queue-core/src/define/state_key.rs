//! Key of a type of shared state.

use std::any::TypeId;

/// Identifies a type of shared state that a handler needs.
#[derive(Clone, Copy, Debug)]
pub struct StateKey {
    id: fn() -> TypeId,
    name: fn() -> &'static str,
}

impl StateKey {
    /// Creates the key of `T`.
    pub const fn of<T: Send + Sync + 'static>() -> Self {
        Self { id: TypeId::of::<T>, name: std::any::type_name::<T> }
    }

    /// Returns the type's identity within this binary.
    pub fn id(self) -> TypeId {
        (self.id)()
    }

    /// Returns the type's full Rust name, for errors.
    pub fn name(self) -> &'static str {
        (self.name)()
    }
}
