//! Claims in the air: sent on links of their own, so that the next one is under way while the last is looked through.

use std::{collections::HashMap, sync::Arc};

use tokio::task::JoinHandle;

use crate::{
    lanes::{Answer, InHand},
    live::{Link, Paused},
    run::Promised,
};

/// Each queue's.
pub(super) type Reserved = HashMap<Arc<str>, Promised>;

/// What a claim found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimResult {
    /// No queue had a free slot.
    Saturated,
    /// All there was.
    Jobs(usize),
    /// As much as was asked for; there may be more.
    Full,
}

/// A claim on its way, on a link of its own, and the slots that are reserved for its jobs. It is awaited, never dropped half-way.
pub(super) struct Flight {
    pub(super) reserved: Reserved,
    /// The pauses by which its lanes were chosen, kept until it has landed.
    pub(super) paused: Option<Arc<Paused>>,
    /// Which of the lanes that were offered it takes from.
    pub(super) course: Course,
    pub(super) landing: JoinHandle<(Link, Answer)>,
    /// What it will bring, as far as that is known.
    pub(super) air: Option<InHand>,
}

/// A claim takes from lanes or from lines. So of those that are offered it takes the first of one kind, and others are for the next claim.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Course {
    /// Where the next claim would begin, if any lanes are left.
    pub(super) next: Option<Onward>,
    /// Whether it takes from lines.
    pub(super) of_lines: bool,
    /// Whether it takes jobs of handlers that take batches.
    pub(super) of_batches: bool,
}

/// The first of the lanes that a claim has left, in the order of its turn: the next turn has another, in which some of them stand before this one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Onward {
    pub(super) turn: usize,
    pub(super) lane: i64,
}

impl Flight {
    pub(super) fn is_over(&self) -> bool {
        self.landing.is_finished()
    }
}

/// Three links at most: each claim in the air has one.
pub(super) struct Links {
    pattern: Link,
    pub(super) idle: Vec<Link>,
}

impl Links {
    pub(super) fn like(pattern: Link) -> Self {
        Self { pattern, idle: Vec::new() }
    }

    /// One that no claim is using.
    pub(super) fn any(&mut self) -> &mut Link {
        let one = self.take();
        self.idle.push(one);
        let last = self.idle.len() - 1;
        &mut self.idle[last]
    }

    pub(super) fn push(&mut self, link: Link) {
        self.idle.push(link);
    }

    pub(super) fn take(&mut self) -> Link {
        self.idle.pop().unwrap_or_else(|| self.pattern.another())
    }

    pub(super) async fn close(&mut self) {
        for link in self.idle.drain(..) {
            link.close().await;
        }
    }
}
