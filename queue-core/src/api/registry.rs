//! Job types of a worker, and the traits by which handlers are called.
//!
//! A worker finds by itself the handlers that are linked into its binary. A [`Registry`] lists them explicitly, for example if several
//! workers of one binary run different types. Every [`Handler`](crate::Handler) is a [`JobRunner`], every
//! [`BatchHandler`](crate::batch::BatchHandler) is a [`BatchRunner`], and [`handler`](macro@crate::handler) generates a type with one of
//! these traits. The other traits describe the contexts and futures of handlers.
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
