//! View settings of the `top` command: selected panel, scroll positions and sort order.

use std::cmp::Reverse;

use super::state::{Panel, QueueMetrics};

/// Sort order of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueOrder {
    Ready,
    Oldest,
    Rate,
    Failed,
    Name,
}

impl QueueOrder {
    const ALL: [Self; 5] = [Self::Ready, Self::Oldest, Self::Rate, Self::Failed, Self::Name];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Oldest => "oldest",
            Self::Rate => "rate",
            Self::Failed => "failed",
            Self::Name => "queue",
        }
    }
}

pub(super) struct View {
    pub(super) schema: &'static str,
    pub(super) part: Panel,
    pub(super) order: QueueOrder,
    /// Index of the first visible row of each panel.
    from: [usize; Panel::ALL.len()],
}

impl View {
    pub(super) fn new(schema: &'static str) -> Self {
        Self { schema, part: Panel::Queues, order: QueueOrder::Ready, from: [0; Panel::ALL.len()] }
    }

    pub(super) fn turn(&mut self, forward: bool) {
        let steps = if forward { 1 } else { Panel::ALL.len() - 1 };
        self.part = Panel::ALL[(self.part as usize + steps) % Panel::ALL.len()];
    }

    pub(super) fn sort_by_next(&mut self) {
        self.order = QueueOrder::ALL[(self.order as usize + 1) % QueueOrder::ALL.len()];
        self.from[Panel::Queues as usize] = 0;
    }

    pub(super) fn move_by(&mut self, rows: isize) {
        let from = &mut self.from[self.part as usize];
        *from = from.saturating_add_signed(rows);
    }

    /// Returns the index of the first visible row of a panel with `rows` rows. The screen shows at most `fit` rows of the panel.
    pub(super) fn first(&mut self, part: Panel, rows: usize, fit: usize) -> usize {
        let from = &mut self.from[part as usize];
        *from = (*from).min(rows.saturating_sub(fit));
        *from
    }

    pub(super) fn sorted<'a>(&self, queues: &'a [QueueMetrics]) -> Vec<&'a QueueMetrics> {
        let mut sorted: Vec<&QueueMetrics> = queues.iter().collect();
        match self.order {
            QueueOrder::Ready => sorted.sort_by_key(|queue| Reverse(queue.ready)),
            QueueOrder::Oldest => sorted.sort_by_key(|queue| Reverse(queue.oldest)),
            QueueOrder::Rate => sorted.sort_by(|a, b| b.rate.total_cmp(&a.rate)),
            QueueOrder::Failed => sorted.sort_by_key(|queue| Reverse(queue.failed)),
            // The queues are already sorted by name.
            QueueOrder::Name => {}
        }
        sorted
    }
}
