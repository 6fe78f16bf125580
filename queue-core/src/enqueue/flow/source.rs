//! Who may be waited for.

use super::plan::Where;

/// What a node may wait for: a [`Node`](crate::Node), or all of a [`Nested`](crate::Nested) flow.
pub trait Source: Sealed {}

/// Where it is.
pub trait Sealed {
    #[doc(hidden)]
    fn place(&self) -> Where;
}
