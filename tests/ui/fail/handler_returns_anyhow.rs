//! A handler cannot return `anyhow::Result`. The module `anyhow` imitates the crate.

use queue_core::{Context, Handler, job};
use serde::{Deserialize, Serialize};

mod anyhow {
    pub struct Error;
    pub type Result<T> = std::result::Result<T, Error>;
}

#[job]
#[derive(Serialize, Deserialize)]
struct SendEmail;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> anyhow::Result<()> {
        Ok(())
    }
}

fn main() {}
