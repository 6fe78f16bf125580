//! Schedules that workers declare or that [`Queue::schedule`](crate::Queue::schedule) creates, and the outcomes of their ticks.
//!
//! A schedule is a row of the store. Any running worker can handle a tick, and each tick enqueues at most one job. `docs/CRON.md` has the
//! rules for time zones, for ticks missed by all workers, and for jobs that take longer than the interval between two ticks.
//!
//! ```no_run
//! # use queue_core::{Context, Handler, JobResult, job};
//! # #[job] #[derive(serde::Serialize, serde::Deserialize)] struct Report { region: String }
//! # impl Handler for Report { async fn run(self, _: &Context) -> JobResult { Ok(()) } }
//! # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
//! use queue_core::{
//!     Queue,
//!     schedule::{Overlap, Schedule},
//! };
//!
//! let nightly = Schedule::cron("30 4 * * MON-FRI").tz("Europe/Berlin").overlap(Overlap::Allow);
//! let queue = Queue::new(&pool);
//! queue.schedule("report_eu").create(&nightly.job(&Report { region: "eu".into() })).await?;
//! for found in queue.schedules().await? {
//!     println!("{}: {:?}", found.name, found.next(3));
//! }
//! # Ok(()) }
//! ```

mod operations;
mod declared;
mod record;
mod db_error;
mod spec;

pub use self::{
    declared::DeclaredSchedule,
    operations::QueueSchedule,
    record::{ScheduleRecord, TickRecord},
    spec::{Declaration, Schedule},
};
pub use crate::define::{Missed, Overlap, Tick};
