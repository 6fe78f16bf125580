//! `--queue mail=20`.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, de::Error as _};

/// A queue with its concurrency, written `mail=20` or `mail`.
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
                let number = number.parse().map_err(|_| "what follows the `=` is not a number; write it like `mail=20`")?;
                (queue, Some(number))
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
