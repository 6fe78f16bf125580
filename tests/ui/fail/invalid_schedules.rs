//! Cron expressions and time zones are checked at compile time. If both are invalid, both errors are reported.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, cron = "30 24 * * *", tz = "Berlin")]
#[derive(Default, Serialize, Deserialize)]
struct Nightly;

#[job(send_only, cron = "0 0 30 2 *", tz = "Europe/Berlin")]
#[derive(Default, Serialize, Deserialize)]
struct NoSuchDate;

fn main() {}
