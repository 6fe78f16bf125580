//! A fair key can be any expression over the payload, and can be combined with an ordering key.

use queue_core::{JobType, job};
use serde::{Deserialize, Serialize};

#[job(fair = self.tenant, key = self.order, send_only)]
#[derive(Serialize, Deserialize)]
struct Field {
    tenant: String,
    order: u8,
}

#[job(fair = format!("{}/{}", self.0, self.1.len()), send_only)]
#[derive(Serialize, Deserialize)]
struct Expression(u8, String);

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct None;

fn main() {
    let field = Field { tenant: "acme".to_owned(), order: 7 };
    assert_eq!((field.fair_key().as_deref(), field.ordering_key().as_deref()), (Some("acme"), Some("7")));
    assert_eq!(Expression(1, "ab".to_owned()).fair_key().as_deref(), Some("1/2"));
    assert_eq!((Field::OPTIONS.fair, None::OPTIONS.fair, None.fair_key().is_none()), (true, false, true));
}
