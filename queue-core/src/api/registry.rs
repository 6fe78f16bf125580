//! Job types of a worker, and the traits by which handlers are called.
//!
//! A worker finds the handlers that are linked into its binary by itself. A [`Registry`] lists them explicitly, for example if several
//! workers of one binary run different types. The traits [`JobRunner`] and [`BatchRunner`] are implemented by
//! [`handler`](macro@crate::handler), and the others by the contexts and futures of handlers.
//!
//! ```
//! use queue_core::{Context, Handler, JobResult, job, registry::Registry};
//! # #[job] #[derive(serde::Serialize, serde::Deserialize)] struct SendEmail { to: String }
//! # impl Handler for SendEmail { async fn run(self, _: &Context) -> JobResult { Ok(()) } }
//!
//! # fn main() -> Result<(), queue_core::registry::RegistryError> {
//! let mut registry = Registry::new();
//! registry.register::<SendEmail>()?;
//! assert!(registry.get("send_email").is_some());
//! # Ok(()) }
//! ```

pub use crate::context::{BatchRunner, HandlerContext, HandlerFuture, JobFuture, JobRunner, Registration, Registry, RegistryError};
