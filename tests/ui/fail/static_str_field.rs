//! A payload owns its data, so a field cannot borrow a string.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: &'static str,
    copies: Option<Vec<&'static str>>,
    #[serde(rename = "skip")]
    kind: &'static str,
}

fn main() {}
