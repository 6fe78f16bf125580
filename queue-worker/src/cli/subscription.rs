//! Queue options, such as `--queue mail=20`.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, de::Error as _};

use super::values::whole_in;

/// Queue with its concurrency, written as `mail=20` or `mail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) queue: String,
    pub(super) concurrency: Option<usize>,
}

impl FromStr for Subscription {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (queue, concurrency) = match text.split_once('=') {
            None => (text, None),
            Some((queue, number)) => {
                let number: u16 =
                    whole_in(1..=10_000)(number).map_err(|error| format!("after the `=`: {error}; write it like `mail=20`"))?;
                (queue, Some(number.into()))
            }
        };
        queue_core::check_name("queue name", queue).map_err(|error| error.to_string())?;
        Ok(Self { queue: queue.to_owned(), concurrency })
    }
}

impl<'de> Deserialize<'de> for Subscription {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
