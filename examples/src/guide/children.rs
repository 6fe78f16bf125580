//! Code blocks of `docs/CHILDREN.md`.

use queue_core::{Handler, JobResult, durable::Durable, job, testing};
use serde::{Deserialize, Serialize};

#[job(name = "guide_onboard_with_children", durable)]
#[derive(Serialize, Deserialize)]
struct Onboard {
    user: i64,
}

#[job(name = "guide_bill", output = String, send_only)]
#[derive(Serialize, Deserialize)]
struct Bill {
    user: i64,
}

#[job(name = "guide_mail", send_only)]
#[derive(Serialize, Deserialize)]
struct Mail {
    user: i64,
}

impl Handler for Onboard {
    #[rustfmt::skip]
    async fn run(self, cx: &Durable) -> JobResult {
        use queue_core::{JobResult, durable::Durable, wait::WaitError}; // `WaitError` for `outcome()`

        // in the handler of the parent, with `cx: &Durable`
        let bill = cx.spawn("bill", Bill { user: self.user }).await?;            // exactly one child, even if the attempt is interrupted
        let mail = cx.spawn("mail", Mail { user: self.user }).queue("mail").await?;
        let number: String = bill.join().await?;                                // the parent is parked meanwhile
        mail.join().await?;
        Ok(())
    }
}

#[tokio::test]
async fn results_of_children() {
    let ran = testing::run(Onboard { user: 7 }).child_completed("bill", "no. 12").child_dead("mail", "bounced").await;
    assert!(ran.is_dead(), "{:?}", ran.error);
}
