//! What tests share: a server, a database each, one job type that does as it is told, and the invariant.

mod act;
mod batched;
mod clock;
mod commit_proxy;
mod db;
pub mod lanes;
pub mod limits;
pub mod lines;
mod marked;
pub mod server;
pub mod operate;
mod ordered;
mod own;
pub mod pooler;
pub mod protocol;
pub mod proxy;
pub mod release;
mod transact;
mod skip;
mod steps;
pub mod tallies;
pub mod timetable;
mod worker_process;

pub use act::{Act, Do, effects};
pub use batched::{Batched, Part};
pub use clock::Clock;
pub use commit_proxy::{Cut, Proxy};
pub use db::{INVARIANT, TestDb, broken, eventually, within};
pub use marked::Marked;
pub use ordered::{Ordered, RUNS, violations};
pub use own::{Own, hold, is_lost};
pub use skip::skipped;
pub use steps::Steps;
pub use transact::Within;
pub use worker_process::WorkerProcess;
