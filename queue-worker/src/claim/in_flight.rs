//! Claims in flight, the slots reserved for them, and idle connections.

use std::{collections::HashMap, sync::Arc, time::Instant};

use crate::{
    lanes::{ClaimResponse, LaneGroup, PayloadReservation},
    live::StoreConnection,
    run::SlotReservation,
};

/// Reserved slots by queue.
pub(super) type SlotReservations = HashMap<Arc<str>, SlotReservation>;

/// A claim that has returned.
pub(super) struct InFlightClaim {
    pub(super) link: StoreConnection,
    pub(super) answer: ClaimResponse,
    pub(super) reserved: Arc<SlotReservations>,
    /// The version of the group from which the claim was built.
    pub(super) group: Arc<LaneGroup>,
    pub(super) sent: Instant,
    /// Whether it scanned below the floors beside the other claims.
    pub(super) is_late_scan: bool,
    /// Payload memory reserved for the expected size, if known.
    pub(super) memory: Option<PayloadReservation>,
}

/// Connections that no claim uses.
pub(super) struct IdleConnections {
    pattern: StoreConnection,
    pub(super) idle: Vec<StoreConnection>,
}

impl IdleConnections {
    pub(super) fn like(pattern: StoreConnection) -> Self {
        Self { pattern, idle: Vec::new() }
    }

    pub(super) fn push(&mut self, link: StoreConnection) {
        self.idle.push(link);
    }

    pub(super) fn take(&mut self) -> StoreConnection {
        self.idle.pop().unwrap_or_else(|| self.pattern.another())
    }
}
