//! Job types of a worker, and the traits through which handlers are called.
//!
//! By default, a worker runs all handlers that are linked into its binary. A [`Registry`] lists the handlers explicitly, for example if
//! several workers of one binary run different types. Every [`Handler`](crate::Handler) is a [`JobRunner`], every
//! [`BatchHandler`](crate::batch::BatchHandler) is a [`BatchRunner`], and [`handler`](macro@crate::handler) generates a type that
//! implements [`JobRunner`] or [`BatchRunner`]. The other traits describe the contexts and futures of handlers.
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
