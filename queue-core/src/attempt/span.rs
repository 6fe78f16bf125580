//! What the span of an attempt is told of its end: at once, or once a transaction is over that is the caller's to commit.

use crate::{
    define::{Options, Outcome},
    trace,
};

/// The span of an attempt that is not over yet, or whose transaction is not: only then it is told how it ended.
#[derive(Debug, Default)]
pub struct AttemptSpan {
    span: trace::Told,
    is_sealed: bool,
}

impl AttemptSpan {
    pub(super) fn new(span: trace::Told, options: &Options) -> Self {
        Self { span, is_sealed: options.seal.is_some() }
    }

    /// It ended so, with this error. Of several endings the first counts.
    pub fn end(&mut self, outcome: Outcome, error: Option<&str>) {
        // What the handler of a sealed payload says of an error may have some of it in clear: not that.
        let error = error.filter(|_| outcome != Outcome::Ok).map(|error| if self.is_sealed { "" } else { error });
        std::mem::take(&mut self.span).end(outcome.word(), error);
    }
}
