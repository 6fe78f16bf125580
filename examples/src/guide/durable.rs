//! Code blocks of `docs/DURABLE.md`.

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Charge {
    receipt: String,
}

#[derive(Serialize, Deserialize)]
struct Approval {
    by: String,
}

async fn book(tx: &mut sqlx::PgConnection, charge: &Charge) -> sqlx::Result<()> {
    Ok(())
}

mod stripe {
    pub(super) async fn charge(user: i64, key: String) -> std::io::Result<super::Charge> {
        Ok(super::Charge { receipt: key })
    }
}

mod mailer {
    pub(super) async fn remind(user: i64) -> std::io::Result<()> {
        Ok(())
    }
}

#[rustfmt::skip]
mod steps {
    use super::{Charge, book, mailer, stripe};

    use std::time::Duration;

    use queue_core::{Handler, JobResult, durable::Durable, job};
    use serde::{Deserialize, Serialize};

    #[job(durable)]
    #[derive(Serialize, Deserialize)]
    struct Onboard { user: i64 }

    impl Handler for Onboard {
        async fn run(self, cx: &Durable) -> JobResult {
            let charge: Charge = cx.step("charge", stripe::charge(self.user, cx.key("charge"))).await?;
            cx.step_tx("book", async |tx| book(tx, &charge).await).await?;
            cx.sleep("trial", Duration::from_hours(14 * 24)).await;
            cx.step("remind", mailer::remind(self.user)).await?;
            Ok(())
        }
    }

    #[tokio::test]
    async fn tests() {
        use queue_core::testing;

        use super::{Approval, others::{Checkout, Crawl, Publish}};

        let (charge, approval) = (Charge { receipt: "no. 12".into() }, Approval { by: "Ada".into() });
        let resumed = || testing::run(Onboard { user: 7 }).journaled("charge", &charge).journaled("book", &()); // after an earlier attempt
        let asleep = resumed().await;
        assert_eq!(asleep.snoozed_for().map(|wait| wait.as_secs() / 86_400), Some(13));
        let ended = resumed().slept("trial").await;

        let parked = testing::run(Publish { page: 7 }).await;
        assert_eq!(parked.waits_for(), ["approval"]);
        let approved = testing::run(Publish { page: 7 }).signal("approval", &approval).await;
        let late = testing::run(Publish { page: 7 }).timed_out("approval").await;

        let next = testing::run(Crawl { page: 1 }).journaled("fetch", &true).await;
        assert_eq!(next.restarted_with::<Crawl>().map(|next| next.page), Some(2));
        let old = testing::run(Checkout { order: 7 }).journaled("checkout", &2).await;              // it started under revision 2
        assert!(ended.is_completed() && approved.is_completed() && old.is_completed());
        assert!(late.is_dead());
    }
}

mod function {
    use std::time::Duration;

    use serde::{Deserialize, Serialize};

    struct Mailer;

    impl Mailer {
        async fn remind(&self, user: i64) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[queue_core::job(name = "guide_onboard_by_a_function", durable, send_only)]
    #[derive(Serialize, Deserialize)]
    struct Onboard {
        user: i64,
    }

    use queue_core::{JobResult, durable::Durable, handler};

    #[handler(state(Mailer))] // the type has `#[job(durable, send_only)]`
    async fn onboard(job: Onboard, cx: &Durable) -> JobResult {
        cx.sleep("trial", Duration::from_hours(14 * 24)).await;
        cx.step("remind", cx.state::<Mailer>().remind(job.user)).await?;
        Ok(())
    }
}

mod others {
    use std::time::Duration;

    use queue_core::{Failure, Handler, JobHandle, JobResult, durable::Durable, job};
    use serde::{Deserialize, Serialize};

    use super::Approval;

    #[job(name = "guide_publish", durable)]
    #[derive(Serialize, Deserialize)]
    pub(super) struct Publish {
        pub(super) page: i64,
    }

    impl Handler for Publish {
        async fn run(self, cx: &Durable) -> JobResult {
            let answer: Option<Approval> = cx.receive("approval").timeout(Duration::from_hours(72)).await;
            answer.map(drop).ok_or_else(|| Failure::terminal("not approved"))
        }
    }

    #[rustfmt::skip]
    async fn signals(cx: &Durable, job: JobHandle<Publish>, mut tx: sqlx::PgTransaction<'_>) -> JobResult {
        let answer: Option<Approval> = cx.receive("approval").timeout(Duration::from_hours(72)).await;  // in the job
        job.signal(&mut tx, "approval", &Approval { by: "Ada".into() }).await?;                         // anywhere, with its handle or id
        Ok(())
    }

    #[job(name = "guide_crawl", durable)]
    #[derive(Serialize, Deserialize)]
    pub(super) struct Crawl {
        pub(super) page: u32,
    }

    /// Returns whether there is another page.
    async fn fetch(page: u32) -> std::io::Result<bool> {
        Ok(page < 3)
    }

    impl Handler for Crawl {
        #[rustfmt::skip]
        async fn run(self, cx: &Durable) -> JobResult {
            let more: bool = cx.step("fetch", fetch(self.page)).await?;
            if more {
                cx.restart(Self { page: self.page + 1 }).await;                        // does not return
            }
            Ok(())
        }
    }

    #[job(name = "guide_checkout", durable)]
    #[derive(Serialize, Deserialize)]
    pub(super) struct Checkout {
        pub(super) order: i64,
    }

    async fn old_way(cx: &Durable) -> JobResult {
        Ok(())
    }

    async fn new_way(cx: &Durable) -> JobResult {
        Err("a job that started under revision 2 takes the old way".into())
    }

    impl Handler for Checkout {
        #[rustfmt::skip]
        async fn run(self, cx: &Durable) -> JobResult {
            let way = cx.revision("checkout", 3).await?;                               // 3 for jobs that start now
            if way < 3 { old_way(cx).await? } else { new_way(cx).await? }
            Ok(())
        }
    }
}
