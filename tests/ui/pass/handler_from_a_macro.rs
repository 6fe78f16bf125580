//! A `macro_rules!` macro can generate a function with `#[handler]` from a type, a name or a body that the caller passes.

use queue_core::{
    Context, JobResult,
    batch::{BatchContext, JobBatch},
    durable::Durable,
    handler, job,
};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Mail;

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Letter;

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Package;

#[job(send_only, batch = 10)]
#[derive(Serialize, Deserialize)]
struct Push;

#[job(send_only, durable, output = u64)]
#[derive(Serialize, Deserialize)]
struct Order;

macro_rules! single {
    ($name:ident, $job:ty, $cx:ty, $output:ty, $value:expr) => {
        #[handler]
        async fn $name(_: $job, _: $cx) -> JobResult<$output> {
            Ok($value)
        }
    };
}

macro_rules! batch {
    ($job:ty) => {
        #[handler]
        async fn push(batch: &mut JobBatch<$job>, _: &BatchContext) -> JobResult {
            assert!(!batch.is_empty());
            Ok(())
        }
    };
}

single!(run, Mail, &Context, (), ());
single!(job, Letter, &Context, (), ());
single!(cx, Package, &Context, (), ());
single!(r#type, Order, &Durable, u64, 1);
batch!(Push);

/// Type whose associated function contains a handler. The nested function is a free function, so it can be a handler.
struct Scope;

impl Scope {
    fn define() {
        #[job(send_only)]
        #[derive(Serialize, Deserialize)]
        struct Inner;

        #[handler]
        async fn inner(_: Inner, cx: &queue_core::Context) -> JobResult {
            println!("{}", cx.attempt());
            Ok(())
        }
    }
}

fn main() {
    Scope::define();
}
