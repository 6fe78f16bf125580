//! What a trial has noted of its handler.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use queue_core::runner::Ending;

/// What a handler reports.
#[derive(Clone, Default)]
pub(crate) struct Said {
    pub(crate) fraction: Option<f64>,
    pub(crate) stage: Option<String>,
    /// JSON text.
    pub(crate) counts: String,
    pub(super) checkpoint: Option<String>,
}

#[derive(Default)]
pub(super) struct Notes {
    pub(super) said: Option<Said>,
    /// What the handler's own transaction has said of the job.
    pub(super) ending: Option<Ending>,
    pub(super) ends: Ends,
}

impl std::fmt::Debug for Notes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notes").finish_non_exhaustive()
    }
}

/// When the times of steps are over.
#[derive(Default)]
pub(super) struct Ends(HashMap<String, Instant>);

impl Ends {
    /// Of a step with so many seconds left, if it has a time.
    pub(super) fn note(&mut self, step: String, left: Option<f64>) {
        if let Some(left) = left {
            let left = Duration::try_from_secs_f64(left.max(0.0)).unwrap_or(Duration::MAX);
            let end = Instant::now().checked_add(left);
            self.0.extend(end.map(|end| (step, end)));
        }
    }

    pub(super) fn is_over(&self, step: &str) -> bool {
        self.0.get(step).is_some_and(|end| *end <= Instant::now())
    }
}
