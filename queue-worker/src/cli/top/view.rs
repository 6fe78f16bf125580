//! Which part is looked at, from where on, and in which order.

use std::cmp::Reverse;

use super::look::{Part, QueueFigures};

/// By what queues are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Ready,
    Oldest,
    Rate,
    Failed,
    Name,
}

impl Order {
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
    pub(super) part: Part,
    pub(super) order: Order,
    /// The first row that is shown of each part.
    from: [usize; Part::ALL.len()],
}

impl View {
    pub(super) fn new(schema: &'static str) -> Self {
        Self { schema, part: Part::Queues, order: Order::Ready, from: [0; Part::ALL.len()] }
    }

    pub(super) fn turn(&mut self, forward: bool) {
        let steps = if forward { 1 } else { Part::ALL.len() - 1 };
        self.part = Part::ALL[(self.part as usize + steps) % Part::ALL.len()];
    }

    pub(super) fn sort_by_next(&mut self) {
        self.order = Order::ALL[(self.order as usize + 1) % Order::ALL.len()];
        self.from[Part::Queues as usize] = 0;
    }

    pub(super) fn move_by(&mut self, rows: isize) {
        let from = &mut self.from[self.part as usize];
        *from = from.saturating_add_signed(rows);
    }

    /// The first row to show of a part that has so many, of which so many fit.
    pub(super) fn first(&mut self, part: Part, rows: usize, fit: usize) -> usize {
        let from = &mut self.from[part as usize];
        *from = (*from).min(rows.saturating_sub(fit));
        *from
    }

    pub(super) fn sorted<'a>(&self, queues: &'a [QueueFigures]) -> Vec<&'a QueueFigures> {
        let mut sorted: Vec<&QueueFigures> = queues.iter().collect();
        match self.order {
            Order::Ready => sorted.sort_by_key(|queue| Reverse(queue.ready)),
            Order::Oldest => sorted.sort_by_key(|queue| Reverse(queue.oldest)),
            Order::Rate => sorted.sort_by(|a, b| b.rate.total_cmp(&a.rate)),
            Order::Failed => sorted.sort_by_key(|queue| Reverse(queue.failed)),
            // As they come.
            Order::Name => {}
        }
        sorted
    }
}
