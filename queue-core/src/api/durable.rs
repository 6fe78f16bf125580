//! Durable jobs: workflows that can be interrupted at any point and continue in a later attempt.
//!
//! The handler of a type with `#[job(durable)]` receives a [`Durable`] context instead of a [`Context`](crate::Context). Each
//! [`step`](Durable::step) that has finished is journaled and does not run again. A durable job can [`sleep`](Durable::sleep) for weeks,
//! [`receive`](Durable::receive) a signal, and [`spawn`](Durable::spawn) or [`map`](Durable::map) child jobs and join their outputs. A
//! waiting job holds neither a slot nor a connection.
//!
//! ```
//! use queue_core::{Handler, JobResult, durable::Durable, job};
//! use serde::{Deserialize, Serialize};
//! use std::time::Duration;
//!
//! /// Charges a user once the trial has ended.
//! #[job(durable, output = String)]
//! #[derive(Serialize, Deserialize)]
//! struct ChargeAfterTrial {
//!     user: i64,
//! }
//!
//! # async fn charge(user: i64, key: String) -> Result<String, std::io::Error> { Ok(key) }
//! impl Handler for ChargeAfterTrial {
//!     async fn run(self, cx: &Durable) -> JobResult<String> {
//!         cx.sleep("trial", Duration::from_hours(14 * 24)).await;
//!         cx.step("charge", charge(self.user, cx.key("charge"))).await
//!     }
//! }
//! ```
//!
//! `docs/DURABLE.md` describes what may change between two releases of a handler, and `docs/CHILDREN.md` and `docs/MAPS.md` describe child
//! jobs.

pub use crate::{
    context::{Durable, Receive, ReceiveWithin, StepName},
    enqueue::{Child, Map, Parts, Spawn},
    results::{MapOutcome, Outputs},
};
