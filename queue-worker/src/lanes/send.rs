//! Sending a claim: of lanes without limits in one round trip, under limits in two.

use std::time::{Duration, Instant};

use queue_core::Store;

use super::{
    claim::{Answer, Request},
    limited,
};
use crate::live::Link;

impl Request {
    /// Sends it, and waits for its rows, which are not looked at yet.
    pub(crate) async fn send(self, link: &mut Link, store: Store) -> Answer {
        let began = Instant::now();
        let is_first = link.is_new();
        let rows = match link.get().await {
            Ok(connection) => match &self.limits {
                Some(limits) => limited::claim(connection, store, &self, limits, is_first).await,
                None => self.claim(connection, store).await,
            },
            Err(error) => Err(error),
        };
        let rows = link.note(rows);
        // The first one includes the connecting and the planning, which say nothing about the tables.
        Answer { request: self, rows, asked: began, took: if is_first { Duration::ZERO } else { began.elapsed() } }
    }
}
