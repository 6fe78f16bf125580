//! An ordering key can be an expression over the payload, shared by a queue, or set per job.

use std::fmt;

use queue_core::{Context, Handler, JobResult, JobType, job, options::KeyPolicy};
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
struct Account(u64);

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "account {}", self.0)
    }
}

#[job(key = self.account, key_policy = skip, send_only)]
#[derive(Serialize, Deserialize)]
struct Field {
    account: Account,
}

#[job(key = format!("{}/{}", self.0, self.1.len()), send_only)]
#[derive(Serialize, Deserialize)]
struct Expression(u8, String);

#[job(fifo, key_policy = block)]
#[derive(Serialize, Deserialize)]
struct Fifo;

impl Handler for Fifo {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

macro_rules! keyed {
    ($name:ident, $field:ident) => {
        #[job(key = self.$field, send_only)]
        #[derive(Serialize, Deserialize)]
        struct $name {
            $field: i32,
        }
    };
}
keyed!(FromAMacro, order);

fn main() {
    assert_eq!(Field { account: Account(7) }.ordering_key().as_deref(), Some("account 7"));
    assert_eq!(Field::OPTIONS.key_policy, KeyPolicy::Skip);
    assert_eq!(Expression(1, "ab".to_owned()).ordering_key().as_deref(), Some("1/2"));
    assert_eq!(Fifo.ordering_key().as_deref(), Some(""));
    assert_eq!(Fifo::OPTIONS.key_policy, KeyPolicy::Block);
    assert_eq!(FromAMacro { order: -3 }.ordering_key().as_deref(), Some("-3"));
}
