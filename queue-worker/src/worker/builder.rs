//! The settings of a worker as methods: the list in `live`, and those that are written otherwise there.

use std::time::Duration;

use queue_core::{Durability, Store};

use super::Worker;
use crate::live::{Config, each_setting};

impl Worker {
    /// With all settings at once; calls after this one change single ones.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Serves this queue with so many handlers at a time. Once a queue is named, others are not served.
    pub fn queue(mut self, queue: impl Into<String>, concurrency: usize) -> Self {
        self.config.queues.push((queue.into(), concurrency));
        self
    }

    /// Works on this store instead of the default one.
    pub fn store(mut self, store: Store) -> Self {
        self.config.store = store;
        self
    }

    /// Whether a verdict waits for the disk. Default [`Durability::Full`]; see [`Durability::Relaxed`] for what the other risks.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.config.durability = durability;
        self
    }
}

macro_rules! methods {
    ($($(#[$said:meta])* $name:ident($variable:literal, $value:literal): $type:ty, $taken:ty, $written:ty = $default:expr;)*) => {
        impl Worker {
            $($(#[$said])* pub fn $name(mut self, $name: $taken) -> Self {
                self.config.$name = $name.into();
                self
            })*
        }
    };
}
each_setting!(methods);
