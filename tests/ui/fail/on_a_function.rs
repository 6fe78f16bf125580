//! The attribute `job` belongs on the payload, not on a function.

use queue_core::job;

#[job(queue = "mail")]
async fn send_email(to: String) {
    drop(to);
}

fn main() {}
