//! The attribute belongs on the payload, not on what runs it.

use queue_core::job;

#[job(queue = "mail")]
async fn send_email(to: String) {
    drop(to);
}

fn main() {}
