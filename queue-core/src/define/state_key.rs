//! Keys of shared state types.

use std::any::TypeId;

/// Key of a shared state type that a handler requires.
#[derive(Clone, Copy, Debug)]
pub struct StateKey {
    id: fn() -> TypeId,
    name: fn() -> &'static str,
}

impl StateKey {
    /// Creates the key of the state type `T`.
    pub const fn of<T: Send + Sync + 'static>() -> Self {
        Self { id: TypeId::of::<T>, name: std::any::type_name::<T> }
    }

    /// Returns the id of the state type within this binary.
    pub fn id(self) -> TypeId {
        (self.id)()
    }

    /// Returns the full Rust name of the state type, for error messages.
    pub fn name(self) -> &'static str {
        (self.name)()
    }
}
