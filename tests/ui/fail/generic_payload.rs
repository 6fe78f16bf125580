//! A job type has one name, which `SendEmail<A>` and `SendEmail<B>` would share.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job]
#[derive(Serialize, Deserialize)]
struct SendEmail<T> {
    body: T,
}

fn main() {}
