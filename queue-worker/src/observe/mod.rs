//! What an operator sees and may do: list, find, count; requeue, cancel, discard. The command line and dashboards are made of these.
//!
//! Every function takes a connection of the caller's and a [`Store`](queue_core::Store), and costs a bounded amount of work whatever the
//! size of the history. Nothing here runs jobs or touches a lease: what a worker holds is the worker's.

mod act;
mod look;
mod room;
mod tally;

pub use act::{cancel, discard, discard_all, requeue, requeue_all};
pub use look::{Filter, Page, find, list};
pub use room::{Capacity, capacities, set_capacity};
pub use tally::{Count, Oldest, WorkerRecord, counts, oldest, workers};
