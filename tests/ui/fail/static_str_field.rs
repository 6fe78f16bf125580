//! A payload owns its data, so a field cannot borrow a string.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: &'static str,
    #[serde(skip)]
    kind: &'static str,
}

fn main() {}
