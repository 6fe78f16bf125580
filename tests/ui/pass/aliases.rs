//! A renamed type keeps its old names as aliases.

use queue_core::{Context, Handler, JobResult, JobType, job, registry::Registry};
use serde::{Deserialize, Serialize};

#[job(aliases = ["send_email", "Mail:v1"])]
#[derive(Serialize, Deserialize)]
struct SendMail;

impl Handler for SendMail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {
    assert_eq!(SendMail::OPTIONS.aliases, ["send_email", "Mail:v1"]);
    let registry = Registry::linked().unwrap();
    for name in ["send_mail", "send_email", "Mail:v1"] {
        assert_eq!(registry.get(name).unwrap().options().name, "send_mail");
    }
    assert_eq!(registry.types().count(), 1);
}
