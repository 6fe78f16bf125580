//! State shared by all slots of a worker.

use std::{sync::Arc, time::Duration};

use queue_core::{Registry, runner::Shared};
use tokio::{runtime::Handle, sync::mpsc::Sender};

use crate::{
    lanes::PayloadMemory,
    live::{Bell, Life, Pauses, Slowed},
    run::{outcome::OutcomeObserver, shared_slots::StoreSlots},
    settle::Settlement,
    tally::Tallies,
};

/// State shared by all slots of a worker.
pub(crate) struct SlotContext {
    pub(crate) registry: Registry,
    pub(crate) shared: Arc<Shared>,
    pub(crate) settle: Sender<Settlement>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) pauses: Pauses,
    pub(crate) life: Life,
    /// Runtime of the handlers: the one on which the worker was started.
    pub(crate) handlers: Handle,
    /// How long the handler of a cancelled job may keep running.
    pub(crate) cancel_grace: Duration,
    pub(crate) teller: OutcomeObserver,
    pub(crate) tallies: Tallies,
    /// Whether the handler of any job type takes batches.
    pub(crate) takes_batches: bool,
    /// Slots shared with other stores of the same process.
    pub(crate) share: Option<StoreSlots>,
    pub(crate) hand: Arc<PayloadMemory>,
    /// Slow-downs requested by handlers.
    pub(crate) slowed: Arc<Slowed>,
}
