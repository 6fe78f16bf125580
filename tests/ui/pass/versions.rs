//! Each earlier version has its own upgrade. It is a closure or a function, and takes a deserialized value or JSON.

use queue_core::{Context, Handler, JobResult, JobType, job, options::Options};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Deserialize)]
struct First {
    to: String,
}

#[job(version = 4, upgrade(3 = |to: Vec<String>| SendEmail { to, copies: 0 }, 1 = from_v1, 2 = Self::from_v2))]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: Vec<String>,
    copies: u32,
}

fn from_v1(old: First) -> SendEmail {
    SendEmail { to: vec![old.to], copies: 0 }
}

impl SendEmail {
    fn from_v2(old: Value) -> Result<Self, &'static str> {
        let to = old.as_str().ok_or("it is no text")?;
        Ok(Self { to: vec![to.to_owned()], copies: 0 })
    }
}

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

/// `send_only` job type in its second version. Such a type needs no upgrade.
#[job(send_only, version = 2)]
#[derive(Serialize, Deserialize)]
struct Sent;

#[job(version = 2, upgrade = upgrade)]
#[derive(Serialize, Deserialize)]
struct Short;

fn upgrade(_: u32) -> Short {
    Short
}

impl Handler for Short {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {
    assert_eq!(SendEmail::OPTIONS.version, 4);
    assert_eq!((Sent::OPTIONS.version, Short::OPTIONS.version), (2, 2));
    assert_eq!(Options::new("plain").version, 1);
}
