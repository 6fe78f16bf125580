//! Claims in flight, slots reserved for claims, and idle connections.

use std::{collections::HashMap, sync::Arc, time::Instant};

use crate::{
    lanes::{ClaimResponse, LaneGroup, PayloadReservation},
    live::StoreConnection,
    run::SlotReservation,
};

/// Reserved slots of each queue.
pub(super) type SlotReservations = HashMap<Arc<str>, SlotReservation>;

/// Claim whose response has arrived, with the slots and memory reserved for its jobs.
pub(super) struct InFlightClaim {
    pub(super) link: StoreConnection,
    pub(super) answer: ClaimResponse,
    pub(super) reserved: Arc<SlotReservations>,
    /// Lane group for which the claim was built. The claimer may have a newer group by now.
    pub(super) group: Arc<LaneGroup>,
    pub(super) sent: Instant,
    /// Whether the claim was a scan for late jobs, sent in addition to the normal claims.
    pub(super) is_late_scan: bool,
    /// Payload memory reserved for the expected size of the claim. `None` if the size is not known.
    pub(super) memory: Option<PayloadReservation>,
}

/// Connections that no claim is using.
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
