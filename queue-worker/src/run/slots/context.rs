//! State shared by all slots of a worker.

use std::{sync::Arc, time::Duration};

use queue_core::{Registry, runner::Shared};
use tokio::{runtime::Handle, sync::mpsc::Sender};

use crate::{
    lanes::PayloadMemory,
    live::{LeaseDeadline, Notifier, Pauses, SlowDowns},
    run::{outcome::OutcomeObserver, shared_slots::StoreSlots},
    settle::Settlement,
    tally::MetricsBuffer,
};

/// Registry, channels, limits and metrics that all slots of a worker share.
pub(crate) struct SlotContext {
    pub(crate) registry: Registry,
    pub(crate) shared: Arc<Shared>,
    pub(crate) settle: Sender<Settlement>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) pauses: Pauses,
    pub(crate) lease_deadline: LeaseDeadline,
    /// Runtime that runs the handlers: the runtime on which the worker was started.
    pub(crate) handlers: Handle,
    /// Maximum time for which the handler of a cancelled job may keep running.
    pub(crate) cancel_grace: Duration,
    pub(crate) observer: OutcomeObserver,
    pub(crate) metrics: MetricsBuffer,
    /// Whether the handler of any job type takes batches.
    pub(crate) takes_batches: bool,
    /// Slots shared with other stores of the same process.
    pub(crate) share: Option<StoreSlots>,
    pub(crate) hand: Arc<PayloadMemory>,
    /// Slow-downs requested by handlers.
    pub(crate) slow_downs: Arc<SlowDowns>,
}
