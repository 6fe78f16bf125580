//! `#[job]` leaves the struct's tokens unchanged, so serde attributes and other derives work above and below it.

use queue_core::{Context, Handler, JobResult, JobType, job, registry::Registry};
use serde::{Deserialize, Serialize};

/// Job that sends an invoice.
#[derive(Debug, PartialEq, Serialize)]
#[job(queue = "above")]
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Invoice {
    /// Number of the invoice to send.
    invoice_number: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lines: Vec<String>,
    #[cfg(any())]
    never: Missing,
}

impl Handler for Invoice {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {
    let invoice = Invoice { invoice_number: 7, lines: vec![] };
    let json = serde_json::to_string(&invoice).unwrap();
    assert_eq!(json, r#"{"invoiceNumber":7}"#);
    assert_eq!(serde_json::from_str::<Invoice>(&json).unwrap(), invoice.clone());
    assert_eq!(Invoice::OPTIONS.queue, "above");
    assert!(Registry::linked().unwrap().get("invoice").is_some());
}
