//! What an operator sees and may do: list, find, count; cancel, put off, hurry, rank; requeue, discard. The command line and dashboards are
//! made of these.
//!
//! Every function takes a connection of the caller's and a [`Store`](queue_core::Store). Looking costs a bounded amount of work whatever the
//! size of the history; what is done to all jobs of a filter is done in batches. Nothing here runs jobs or takes from a lease: what a worker
//! holds is the worker's, and a running job that is to be cancelled is only marked.

mod act;
mod control;
mod look;
mod room;
mod sweep;
mod tally;

pub use act::{cancel, discard, discard_all, requeue, requeue_all, requeue_at};
pub use control::{Control, Controlled, control};
pub use look::{Filter, Page, add_failures, find, list};
pub use room::{Capacity, capacities, set_capacity};
pub use sweep::{Swept, control_all, count_dead, count_waiting};
pub use tally::{Count, Oldest, WorkerRecord, counts, oldest, workers};
