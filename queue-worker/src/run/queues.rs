//! The slots of every queue that a worker serves.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::slots::{SlotContext, Slots, lock};
use crate::{
    lanes::PayloadMemory,
    live::{Config, Load, Paused, Pauses},
};

/// The slots of every queue that this worker serves.
pub(crate) struct Queues {
    pub(crate) context: Arc<SlotContext>,
    /// Each named queue's concurrency; empty when any queue is served.
    named: HashMap<String, usize>,
    concurrency: usize,
    slots: Mutex<HashMap<String, Arc<Slots>>>,
}

impl Queues {
    pub(crate) fn new(context: SlotContext, config: &Config) -> Self {
        let named = config.queues.iter().cloned().collect();
        Self { context: Arc::new(context), named, concurrency: config.concurrency, slots: Mutex::default() }
    }

    /// The slots of this queue; `None` if it is not served.
    pub(crate) fn slots(&self, queue: &str) -> Option<Arc<Slots>> {
        let mut slots = lock(&self.slots);
        if let Some(known) = slots.get(queue) {
            return Some(Arc::clone(known));
        }
        let concurrency = if self.named.is_empty() { self.concurrency } else { *self.named.get(queue)? };
        let fresh = Slots::new(&self.context, concurrency, queue);
        slots.insert(queue.to_owned(), Arc::clone(&fresh));
        Some(fresh)
    }

    /// Whether some queue runs one job at a time: its order is then to be seen, and two claims at once would mix it.
    pub(crate) fn keep_order(&self) -> bool {
        if self.named.is_empty() { self.concurrency == 1 } else { self.named.values().any(|concurrency| *concurrency == 1) }
    }

    /// How much there is to do now, asked at each heartbeat.
    pub(crate) fn load(&self) -> Load {
        let all = self.all();
        let busy: usize = all.iter().map(|slots| slots.busy()).sum();
        let met = all.iter().map(|slots| slots.concurrency()).sum::<usize>().max(self.concurrency);
        let slots = if self.named.is_empty() { met } else { self.named.values().sum() };
        Load { busy, slots }
    }

    /// All slots there are by now.
    pub(crate) fn all(&self) -> Vec<Arc<Slots>> {
        lock(&self.slots).values().cloned().collect()
    }

    /// The type of this name by its own one, and how many of its jobs a batch has at most, if its handler takes batches.
    pub(crate) fn batch_of(&self, job_type: &str) -> Option<(&'static str, usize)> {
        let known = if self.context.takes_batches { self.context.registry.get(job_type) } else { None };
        known.and_then(|known| Some((known.options().name, known.options().batch?)))
    }

    /// The present name of a type, if it is known here.
    pub(crate) fn present_name<'a>(&self, job_type: &'a str) -> &'a str {
        self.context.registry.get(job_type).map_or(job_type, |known| known.options().name)
    }

    /// What is in hand.
    pub(crate) fn hand(&self) -> &Arc<PayloadMemory> {
        &self.context.hand
    }

    /// What is paused.
    pub(crate) fn pauses(&self) -> &Pauses {
        &self.context.pauses
    }

    /// Gives back, uncharged, what these cover and no slot has begun.
    pub(crate) async fn give_back_paused(&self, paused: &Paused) {
        let all: Vec<(String, Arc<Slots>)> = lock(&self.slots).iter().map(|(queue, slots)| (queue.clone(), Arc::clone(slots))).collect();
        for (queue, slots) in all {
            for job in slots.take_covered(&queue, paused) {
                slots.give_back(&job).await;
            }
        }
    }

    /// Forgets everything: the lease is lost.
    pub(crate) fn abandon(&self) {
        for slots in self.all() {
            slots.abandon();
        }
    }

    /// The queues that are named, or `None` for any.
    pub(crate) fn named(&self) -> Option<Vec<String>> {
        (!self.named.is_empty()).then(|| self.named.keys().cloned().collect())
    }
}
