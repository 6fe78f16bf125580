//! Only a type with a handler can declare a schedule.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(cron = "30 4 * * *", send_only)]
#[derive(Default, Serialize, Deserialize)]
struct Nightly;

fn main() {}
