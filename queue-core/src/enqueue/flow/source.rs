//! Sources of flow edges.

use super::plan::SourcePosition;

/// Source of a flow edge, for which a node can wait: a [`Node`](crate::Node), or all nodes of a [`Nested`](crate::Nested) flow.
pub trait Source: Sealed {}

/// Position of a source within a flow. The trait is sealed, so other crates cannot implement it.
pub trait Sealed {
    #[doc(hidden)]
    fn place(&self) -> SourcePosition;
}
