//! A payload has both of serde's derives.

use queue_core::job;
use serde as _;

#[job(send_only)]
struct SendEmail;

fn main() {}
