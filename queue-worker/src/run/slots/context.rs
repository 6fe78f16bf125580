//! State shared by all slots of a worker.

use std::{sync::Arc, time::Duration};

use queue_core::{registry::Registry, runner::Shared};
use tokio::{runtime::Handle, sync::mpsc::Sender};

use crate::{
    lanes::PayloadMemory,
    live::{LeaseDeadline, Notifier, Pauses, SlowDowns},
    run::{outcome::OutcomeObserver, shared_slots::StoreSlots},
    settle::Settlement,
    tally::MetricsBuffer,
};

/// Registry, channels, limits and metrics shared by all slots of a worker.
pub(crate) struct SlotContext {
    pub(crate) registry: Registry,
    pub(crate) shared: Arc<Shared>,
    pub(crate) settle: Sender<Settlement>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) pauses: Pauses,
    pub(crate) lease_deadline: LeaseDeadline,
    /// Runtime on which the worker was started. The handlers run on this runtime.
    pub(crate) handlers: Handle,
    /// Maximum run time of a handler after its job was cancelled.
    pub(crate) cancel_grace: Duration,
    pub(crate) observer: OutcomeObserver,
    pub(crate) metrics: MetricsBuffer,
    /// Whether any job type has a handler that takes batches.
    pub(crate) takes_batches: bool,
    /// Slots shared with other stores of the same process. `None` unless a `StoresWorker` runs this worker.
    pub(crate) share: Option<StoreSlots>,
    pub(crate) hand: Arc<PayloadMemory>,
    /// Slow-downs that handlers have requested.
    pub(crate) slow_downs: Arc<SlowDowns>,
}
