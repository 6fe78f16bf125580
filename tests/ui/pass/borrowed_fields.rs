//! A field may borrow if serde does not read it.

use std::marker::PhantomData;

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Skipped {
    #[serde(skip)]
    a: &'static str,
    #[serde(skip_deserializing)]
    b: Option<&'static str>,
    #[cfg_attr(all(), serde(skip))]
    c: &'static str,
    #[cfg(any())]
    d: &'static str,
    e: PhantomData<&'static str>,
}

#[job(send_only)]
struct ByHand {
    a: &'static str,
}

impl Serialize for ByHand {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.a.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ByHand {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|_| Self { a: "read" })
    }
}

fn main() {
    let read: Skipped = serde_json::from_str(r#"{"e": null}"#).unwrap();
    assert!(read.a.is_empty() && read.b.is_none() && read.c.is_empty() && read.e == PhantomData);
    assert_eq!(serde_json::from_str::<ByHand>("\"x\"").unwrap().a, "read");
}
