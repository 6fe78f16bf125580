//! Claims in flight, slots reserved for claims, and idle connections.

use std::{collections::HashMap, sync::Arc, time::Instant};

use crate::{
    lanes::{ClaimResponse, LaneGroup, PayloadReservation},
    live::StoreConnection,
    run::SlotReservation,
};

/// Reserved slots by queue.
pub(super) type SlotReservations = HashMap<Arc<str>, SlotReservation>;

/// Finished round trip of a claim, with the slots and memory reserved for the claim.
pub(super) struct InFlightClaim {
    pub(super) link: StoreConnection,
    pub(super) answer: ClaimResponse,
    pub(super) reserved: Arc<SlotReservations>,
    /// Version of the group from which the claim was built.
    pub(super) group: Arc<LaneGroup>,
    pub(super) sent: Instant,
    /// Whether the claim was a late scan in addition to the normal claims.
    pub(super) is_late_scan: bool,
    /// Payload memory reserved for the expected size of the claim, if known.
    pub(super) memory: Option<PayloadReservation>,
}

/// Connections that are not used by a claim.
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
