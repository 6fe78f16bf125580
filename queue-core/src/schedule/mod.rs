//! What the clock enqueues: schedules, declared by workers or made by anybody, and what came of their ticks.
//!
//! A schedule is a row of the store; workers see to its ticks, whichever is there, and a tick has one job at most. The rules for time zones,
//! for ticks that nobody was there for, and for jobs that take longer than the pause between two ticks are in `docs/CRON.md`.
//!
//! ```no_run
//! # use queue_core::{Context, Handler, JobResult, Store, job};
//! # #[job] #[derive(serde::Serialize, serde::Deserialize)] struct Report { region: String }
//! # impl Handler for Report { async fn run(self, _: &Context) -> JobResult { Ok(()) } }
//! # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
//! use queue_core::schedule::{self, Overlap, Schedule};
//!
//! let nightly = Schedule::cron("30 4 * * MON-FRI").tz("Europe/Berlin").overlap(Overlap::Allow);
//! schedule::create(&pool, Store::default(), "report_eu", &nightly.job(&Report { region: "eu".into() })).await?;
//! for found in schedule::list(&pool, Store::default()).await? {
//!     println!("{}: {:?}", found.name, found.next(3));
//! }
//! # Ok(()) }
//! ```

mod act;
mod declared;
mod record;
mod refused;
mod spec;

pub use self::{
    act::{create, delete, pause, resume, run_now, skip_next},
    declared::Declared,
    record::{Fire, ScheduleRecord, find, fires, list},
    spec::{Declaration, Schedule},
};
pub use crate::define::{Missed, Overlap, Tick};
