//! Job types of the shop. This crate depends only on `queue-core`, so the web server links neither handlers nor their dependencies.

use queue_core::job;
use serde::{Deserialize, Serialize};

/// Charges, books and confirms an order. Each of the three operations takes effect once.
#[job(send_only, queue = "orders", durable, max_attempts = 5, backoff = exponential("100ms", max = "10m"))]
#[derive(Serialize, Deserialize)]
pub struct FulfilOrder {
    /// Id of the order.
    pub order: i64,
}

/// Sends one mail. At most 30 jobs of this type start per minute.
#[job(send_only, queue = "mail", timeout = "30s", limit(rate = "30/1m"))]
#[derive(Serialize, Deserialize)]
pub struct SendMail {
    /// Address of the recipient.
    pub to: String,
    /// Text of the mail.
    pub text: String,
}

/// Counts the orders each morning.
#[job(send_only, cron = "0 6 * * *", tz = "Europe/Berlin")]
#[derive(Default, Serialize, Deserialize)]
pub struct DailyReport {}
