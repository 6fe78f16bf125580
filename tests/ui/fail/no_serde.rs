//! A payload without the serde derives is rejected.

use queue_core::job;
use serde as _;

#[job(send_only)]
struct SendEmail;

fn main() {}
