//! Lanes that a worker serves, and claims of jobs from these lanes. A lane contains the ready jobs of one queue, job type, version and
//! priority.

mod claim;
mod fair_cursors;
mod fair_progress;
mod fair_queues;
mod floors;
mod groups;
mod lane;
mod lane_state;
mod late_claim;
mod late_scan;
mod leases;
mod limit_outcome;
mod limited_claim;
mod omitted;
mod payload_memory;
mod payload_sizes;
mod send;
mod served;
mod totals;

pub(crate) use self::{
    claim::{ClaimRequest, ClaimResponse, ClaimSource, ClaimedBatch, LaneQuota, LeasedJob},
    fair_queues::move_to_fair_lanes,
    groups::{LaneGroup, LaneGroupKey},
    lane::{Lane, order, stored_types},
    lane_state::LaneState,
    late_scan::{BlockScan, LateScan},
    leases::{LeaseGuard, LeaseRegistry},
    limit_outcome::{LimitOutcome, LimitRequest},
    payload_memory::{PayloadMemory, PayloadReservation},
    send::ClaimReport,
    served::{Lanes, Probe, ProbeMode, ProbeResult},
};
