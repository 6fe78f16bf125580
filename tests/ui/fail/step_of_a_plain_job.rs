use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job]
#[derive(Serialize, Deserialize)]
struct Ship {
    order: i64,
}

impl Handler for Ship {
    async fn run(self, cx: &Context) -> JobResult {
        cx.step("ship", async { Ok::<_, std::io::Error>(self.order) }).await;
        Ok(())
    }
}

fn main() {}
