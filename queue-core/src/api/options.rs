//! Options of job types, and the decision about a job after an attempt.
//!
//! `#[job(..)]` writes the [`Options`] of a type as a constant. Most keys of the attribute call the method of `Options` with the same
//! name. Most programs use only a few option types directly. A [`Limit`] is also an argument of
//! [`Queue::set_limit`](crate::Queue::set_limit). [`verdict`] maps the [`Outcome`] of an attempt to a [`Verdict`].
//!
//! ```
//! use queue_core::{
//!     JobType, job,
//!     options::{Backoff, Outcome, Verdict, verdict},
//! };
//! use std::time::Duration;
//!
//! #[job(send_only, max_attempts = 3, backoff = fixed("10s", jitter = 0))]
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct SendEmail {
//!     to: String,
//! }
//!
//! assert_eq!(SendEmail::OPTIONS.max_attempts, 3);
//! let backoff = &SendEmail::OPTIONS.backoff;
//! assert_eq!(verdict(Outcome::TimedOut, 1, 3, backoff, 0.5), Verdict::Retry(Duration::from_secs(10)));
//! assert_eq!(verdict(Outcome::TimedOut, 3, 3, backoff, 0.5), Verdict::Dead);
//! ```

pub use crate::{
    define::{
        Backoff, Durability, KeyPolicy, Limit, OldPayload, Options, Outcome, Retain, StateKey, Unique, UniqueKey, Verdict, While, verdict,
    },
    trace::TraceRelation,
};
