//! Record of a trial: the handler's progress and ending, and the end times of waits.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use queue_core::runner::Ending;

/// Progress that a trial's handler has reported.
#[derive(Clone, Default)]
pub(crate) struct Progress {
    pub(crate) fraction: Option<f64>,
    pub(crate) stage: Option<String>,
    /// Event counts as JSON text.
    pub(crate) counts: String,
    pub(super) checkpoint: Option<String>,
}

#[derive(Default)]
pub(super) struct TrialRecord {
    pub(super) progress: Option<Progress>,
    /// Ending that the handler's own transaction would have written, if any.
    pub(super) ending: Option<Ending>,
    pub(super) deadlines: StepDeadlines,
}

impl std::fmt::Debug for TrialRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrialRecord").finish_non_exhaustive()
    }
}

/// End times of waits, by step name.
#[derive(Default)]
pub(super) struct StepDeadlines(HashMap<String, Instant>);

impl StepDeadlines {
    /// Records that a step's wait ends `left` seconds from now. Does nothing if `left` is `None`.
    pub(super) fn record(&mut self, step: String, left: Option<f64>) {
        if let Some(left) = left {
            let left = Duration::try_from_secs_f64(left.max(0.0)).unwrap_or(Duration::MAX);
            let end = Instant::now().checked_add(left);
            self.0.extend(end.map(|end| (step, end)));
        }
    }

    pub(super) fn has_passed(&self, step: &str) -> bool {
        self.0.get(step).is_some_and(|end| *end <= Instant::now())
    }
}
