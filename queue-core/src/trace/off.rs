//! Without the feature `otel`: spans are as they were made, and jobs carry nothing.

use tracing::Span;

use super::{Beginning, Carried};

pub(crate) fn carried(_: &Span) -> Option<Carried> {
    None
}

pub(crate) fn begin(_: &Span, _: &Beginning<'_>) {}

pub(crate) fn begin_batch<'a>(_: &Span, _: impl ExactSizeIterator<Item = Beginning<'a>>) {}

/// A span that is told how what it is of ended: nobody wants to know, so it is not kept.
#[derive(Debug, Default)]
pub(crate) struct Told;

impl Told {
    pub(crate) fn of(_: &Span) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "with the feature it is told")]
    pub(crate) fn end(self, _: &'static str, _: Option<&str>) {}
}
