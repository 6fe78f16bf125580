//! A payload needs both serde derives.

use queue_core::job;
use serde as _;

#[job(send_only)]
struct SendEmail;

fn main() {}
