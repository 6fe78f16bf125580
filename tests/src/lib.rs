//! What tests share: a server, a database each, one job type that does as it is told, and the invariant.

mod act;
#[cfg(feature = "mutants")]
pub mod chaos;
mod db;
pub mod guards;
pub mod operate;
pub mod protocol;
mod transact;
mod worker_process;

pub use act::{Act, Do, effects};
#[cfg(feature = "mutants")]
pub(crate) use db::INVARIANT;
pub use db::{TestDb, broken, eventually, within};
pub use transact::Within;
pub use worker_process::WorkerProcess;
