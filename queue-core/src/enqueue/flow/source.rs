//! Sources of flow edges.

use super::plan::SourcePosition;

/// Source of a flow edge: a [`Node`](crate::Node), or all nodes of a [`Nested`](crate::Nested) flow.
pub trait Source: Sealed {}

/// Supertrait that seals [`Source`] and returns the source's position in its flow.
pub trait Sealed {
    #[doc(hidden)]
    fn place(&self) -> SourcePosition;
}
