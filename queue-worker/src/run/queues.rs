//! Slots of all queues that a worker serves.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::slots::{SlotContext, Slots, lock};
use crate::{
    lanes::PayloadMemory,
    live::{Config, Load, PauseSnapshot, Pauses},
};

/// Slots of all queues that a worker serves. The slots of a queue are created on first use.
pub(crate) struct Queues {
    pub(crate) context: Arc<SlotContext>,
    /// Concurrency of each configured queue. Empty if the worker serves every queue.
    named: HashMap<String, usize>,
    concurrency: usize,
    slots: Mutex<HashMap<String, Arc<Slots>>>,
}

impl Queues {
    pub(crate) fn new(context: SlotContext, config: &Config) -> Self {
        let named = config.queues.iter().cloned().collect();
        Self { context: Arc::new(context), named, concurrency: config.concurrency, slots: Mutex::default() }
    }

    /// Returns the slots of `queue`, or `None` if the worker does not serve the queue.
    pub(crate) fn slots(&self, queue: &str) -> Option<Arc<Slots>> {
        let mut slots = lock(&self.slots);
        if let Some(existing) = slots.get(queue) {
            return Some(Arc::clone(existing));
        }
        let concurrency = if self.named.is_empty() { self.concurrency } else { *self.named.get(queue)? };
        let new = Slots::new(&self.context, concurrency, queue);
        slots.insert(queue.to_owned(), Arc::clone(&new));
        Some(new)
    }

    /// Returns whether any queue runs one job at a time. Jobs in a queue with concurrency 1 must start in order, and concurrent claims
    /// would change the order.
    pub(crate) fn keep_order(&self) -> bool {
        if self.named.is_empty() { self.concurrency == 1 } else { self.named.values().any(|concurrency| *concurrency == 1) }
    }

    /// Returns the worker's current load, which each heartbeat reports.
    pub(crate) fn load(&self) -> Load {
        let all = self.all();
        let busy: usize = all.iter().map(|slots| slots.busy()).sum();
        let existing = all.iter().map(|slots| slots.concurrency()).sum::<usize>().max(self.concurrency);
        let slots = if self.named.is_empty() { existing } else { self.named.values().sum() };
        Load { busy, slots }
    }

    /// Returns the slots of all queues used so far.
    pub(crate) fn all(&self) -> Vec<Arc<Slots>> {
        lock(&self.slots).values().cloned().collect()
    }

    /// Returns the current name and the maximum batch size of a job type, or `None` if the type's handler does not take batches.
    pub(crate) fn batch_of(&self, job_type: &str) -> Option<(&'static str, usize)> {
        let registration = if self.context.takes_batches { self.context.registry.get(job_type) } else { None };
        registration.and_then(|registration| Some((registration.options().name, registration.options().batch?)))
    }

    /// Returns the current name of a job type, or `job_type` if the type is not registered.
    pub(crate) fn present_name<'a>(&self, job_type: &'a str) -> &'a str {
        self.context.registry.get(job_type).map_or(job_type, |registration| registration.options().name)
    }

    /// Returns the memory budget for payloads.
    pub(crate) fn payload_memory(&self) -> &Arc<PayloadMemory> {
        &self.context.hand
    }

    /// Returns the pauses shared by all tasks of the worker.
    pub(crate) fn pauses(&self) -> &Pauses {
        &self.context.pauses
    }

    /// Releases the paused jobs that no slot has started. The release does not count as an attempt.
    pub(crate) async fn give_back_paused(&self, paused: &PauseSnapshot) {
        let all: Vec<(String, Arc<Slots>)> = lock(&self.slots).iter().map(|(queue, slots)| (queue.clone(), Arc::clone(slots))).collect();
        for (queue, slots) in all {
            for job in slots.take_paused(&queue, paused) {
                slots.give_back(&job).await;
            }
        }
    }

    /// Drops all jobs without sending their verdicts. Other workers recover the jobs.
    pub(crate) fn abandon(&self) {
        for slots in self.all() {
            slots.abandon();
        }
    }

    /// Returns the names of the configured queues, or `None` if the worker serves every queue.
    pub(crate) fn named(&self) -> Option<Vec<String>> {
        (!self.named.is_empty()).then(|| self.named.keys().cloned().collect())
    }
}
