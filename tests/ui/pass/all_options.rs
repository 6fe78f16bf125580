//! Options of the attribute set the fields of `Options` with the same names.

use std::time::Duration;

use queue_core::{
    Context, Handler, JobResult, JobType, job,
    options::{Backoff, Durability, Retain, StateKey},
    registry::Registry,
};
use serde::{Deserialize, Serialize};

struct Mailer;
struct Db;

#[derive(Serialize, Deserialize)]
struct MessageId(u64);

#[job(
    name = "mail.send",
    aliases = ["send_mail", "send-email"],
    queue = "mail",
    priority = -150,
    max_attempts = 5,
    backoff = exponential("1s", max = "10m", jitter = 0.1),
    timeout = "1m30s",
    expires = "2h",
    output = MessageId,
    state(Mailer, Db),
    retain = "none",
    durability = relaxed,
    transactional,
)]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult<MessageId> {
        Ok(MessageId(self.to.len() as u64))
    }
}

fn main() {
    let options = SendEmail::OPTIONS;
    assert_eq!(options.name, "mail.send");
    assert_eq!(options.aliases, ["send_mail", "send-email"]);
    assert_eq!(options.queue, "mail");
    assert_eq!(options.priority, -150);
    assert_eq!(options.max_attempts, 5);
    assert_eq!(options.backoff, Backoff::exponential(Duration::from_secs(1)).max(Duration::from_secs(600)).jitter(0.1));
    assert_eq!((options.timeout, options.expires), (Some(Duration::from_secs(90)), Some(Duration::from_secs(7200))));
    assert_eq!(options.retain, Retain::None);
    assert_eq!((options.durability, options.transactional), (Durability::Relaxed, true));
    let states: Vec<_> = options.state.iter().map(|key| key.id()).collect();
    assert_eq!(states, [StateKey::of::<Mailer>().id(), StateKey::of::<Db>().id()]);

    let registry = Registry::linked().unwrap();
    let names: Vec<_> = registry.names().map(|(name, _)| name).collect();
    assert_eq!(names, ["mail.send", "send-email", "send_mail"]);
}
