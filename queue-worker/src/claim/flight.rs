//! Claims that have come back, the slots that are reserved for each, and links for them.

use std::{collections::HashMap, sync::Arc, time::Instant};

use crate::{
    lanes::{Answer, Group, InHand},
    live::Link,
    run::Promised,
};

/// Each queue's.
pub(super) type Reserved = HashMap<Arc<str>, Promised>;

/// A claim that has come back.
pub(super) struct Flight {
    pub(super) link: Link,
    pub(super) answer: Answer,
    pub(super) reserved: Arc<Reserved>,
    /// By whose pauses its lanes were chosen.
    pub(super) group: Arc<Group>,
    pub(super) sent: Instant,
    /// It looked below the floors beside the claims.
    pub(super) is_late: bool,
    /// What it will bring, as far as that is known.
    pub(super) air: Option<InHand>,
}

/// Links that no claim is using.
pub(super) struct Links {
    pattern: Link,
    pub(super) idle: Vec<Link>,
}

impl Links {
    pub(super) fn like(pattern: Link) -> Self {
        Self { pattern, idle: Vec::new() }
    }

    pub(super) fn push(&mut self, link: Link) {
        self.idle.push(link);
    }

    pub(super) fn take(&mut self) -> Link {
        self.idle.pop().unwrap_or_else(|| self.pattern.another())
    }
}
