//! A payload cannot be generic, because `SendEmail<A>` and `SendEmail<B>` would have the same name.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job]
#[derive(Serialize, Deserialize)]
struct SendEmail<T> {
    body: T,
}

fn main() {}
