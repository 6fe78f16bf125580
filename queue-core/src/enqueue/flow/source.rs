//! Sources of flow edges.

use super::plan::SourcePosition;

/// Source of a flow edge: a [`Node`](crate::flow::Node), or all nodes of a [`Nested`](crate::flow::Nested) flow.
///
/// ```
/// # use queue_core::{flow::{Flow, Node, Source}, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Mail;
/// fn mail_after(flow: &mut Flow, source: &impl Source) -> Node<Mail> {
///     flow.add("mail", Mail).after(source)
/// }
///
/// let mut flow = Flow::new("import");
/// let first = flow.add("first", Mail);
/// mail_after(&mut flow, &first);
/// ```
pub trait Source: Sealed {}

/// Supertrait that seals [`Source`] and returns the source's position in its flow.
pub trait Sealed {
    #[doc(hidden)]
    fn place(&self) -> SourcePosition;
}
