//! Traits used by the expansion of `#[handler]`. They reduce each type error in a handler function to one compiler message.

use super::{BatchRunner, Context, Durable, HandlerContext, JobRunner, Registration};
use crate::define::{JobType, Payload};

/// Job type of a function with `#[handler]`. Every job type implements this trait.
///
/// The generated trait implementations have this bound as a where clause, so rustc does not check their bodies for a type that is not a
/// job type. The only remaining errors are those of the projections [`Job`](Self::Job) and [`Registrar`](Self::Registrar). These errors
/// have the same text and position, so rustc prints a single error. The lifetime exists only for `for<'a>` in the where clause. Without
/// `for<'a>`, rustc checks the clause immediately and reports an additional error.
pub trait HandlerJob<'a> {
    /// `Self`, with the bounds of a job type.
    type Job: JobType<Cx: HandlerContext>;
    /// The type [`Registrar`].
    type Registrar;
}

impl<T: JobType<Cx: HandlerContext> + Payload> HandlerJob<'_> for T {
    type Job = T;
    type Registrar = Registrar;
}

/// Handler of single jobs, generated for a function by `#[handler]`. Only generated handlers implement this trait, while [`JobRunner`]
/// also has a blanket implementation. Rustc therefore reports the unsatisfied where clause of the generated implementation.
pub trait Function: JobRunner {}

/// Handler of batches, generated for a function by `#[handler]`.
pub trait BatchFunction: BatchRunner {}

/// Namespace for the constructors of function registrations.
#[derive(Debug)]
pub enum Registrar {}

impl Registrar {
    /// Creates the registration for a handler of single jobs.
    pub const fn of<H: Function>() -> Registration {
        Registration::of::<H>()
    }

    /// Creates the registration for a handler of batches.
    pub const fn of_batch<H: BatchFunction>() -> Registration {
        Registration::of_batch::<H>()
    }
}

/// Conversion from the context type `Self` of a job type to the context type `C` that the handler function takes.
#[diagnostic::on_unimplemented(
    message = "the handler of this job type takes `&{Self}`, not `&{C}`",
    label = "expected `&{Self}`",
    note = "only a job type with the option `durable` has a handler that takes `&Durable`: write `durable` in the `#[job(..)]` of the payload"
)]
pub trait ContextAs<C> {
    /// Returns the context as the type that the handler takes.
    fn context(&self) -> &C;
}

#[diagnostic::do_not_recommend]
impl<C> ContextAs<C> for C {
    fn context(&self) -> &C {
        self
    }
}

#[diagnostic::do_not_recommend]
impl ContextAs<Context> for Durable {
    fn context(&self) -> &Context {
        self
    }
}

/// Converts the context of a job type into the type that its handler takes.
pub fn into_context<C, D: ContextAs<C>>(cx: &D) -> &C {
    cx.context()
}
