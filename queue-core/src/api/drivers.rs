//! Enqueues through other database drivers, for example tokio-postgres or Diesel.
//!
//! [`Job::statement`](crate::Job::statement) builds an enqueue statement without a connection: the SQL text and its three parameters. Run
//! the statement with your driver, in your transaction. The example program `drivers` shows tokio-postgres, Diesel and `SeaORM`.
//!
//! ```no_run
//! # use queue_core::{Job as _, JobHandle, job};
//! # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct SendEmail { to: String }
//! # trait Driver { fn query_one(&self, sql: &str, parameters: [&str; 3]) -> (i64, String); }
//! # fn example(tx: &dyn Driver) -> Result<JobHandle<SendEmail>, queue_core::Error> {
//! let enqueue = SendEmail { to: "ada@example.org".into() }.statement().build()?;
//! let (id, outcome) = tx.query_one(enqueue.sql(), enqueue.parameters());
//! let job = enqueue.handle(id, &outcome);
//! # Ok(job) }
//! ```

pub use crate::enqueue::{Rendered, Statement};
