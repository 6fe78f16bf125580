//! What a node can wait for.

use super::plan::SourcePosition;

/// What a node can wait for: a [`Node`](crate::Node), or all of a [`Nested`](crate::Nested) flow.
pub trait Source: Sealed {}

/// Position of a source; keeps the trait from being implemented elsewhere.
pub trait Sealed {
    #[doc(hidden)]
    fn place(&self) -> SourcePosition;
}
