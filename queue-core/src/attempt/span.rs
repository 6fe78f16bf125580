//! What the span of an attempt is told of its end: at once, or once a transaction is over that is the caller's to commit.

use tracing::Span;

use crate::{
    define::{Options, Outcome},
    trace,
};

/// The span of an attempt whose transaction is not over yet. It is told only then how the attempt ended.
#[derive(Debug)]
pub struct AttemptSpan {
    span: Span,
    is_sealed: bool,
}

impl Default for AttemptSpan {
    fn default() -> Self {
        Self { span: Span::none(), is_sealed: false }
    }
}

impl AttemptSpan {
    pub(super) fn new(span: Span, options: &Options) -> Self {
        Self { span, is_sealed: options.seal.is_some() }
    }

    /// It ended so, with this error. Of several endings the first counts.
    pub fn end(&mut self, outcome: Outcome, error: Option<&str>) {
        let span = std::mem::replace(&mut self.span, Span::none());
        // What the handler of a sealed payload says of an error may have some of it in clear: not that.
        let error = error.filter(|_| outcome != Outcome::Ok).map(|error| if self.is_sealed { "" } else { error });
        trace::end(&span, outcome.word(), error);
    }
}
