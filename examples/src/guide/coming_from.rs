//! Code blocks of `docs/COMING_FROM.md`.

use std::{io, time::Duration};

use queue_core::{Error, Handler, JobResult, durable::Durable, job};
use serde::{Deserialize, Serialize};

fn days(days: u64) -> Duration {
    Duration::from_hours(days * 24)
}

mod temporal {
    use super::*;

    #[job(name = "guide_sign_up", durable)]
    #[derive(Serialize, Deserialize)]
    struct SignUp {
        user: i64,
    }

    async fn welcome(user: i64) -> io::Result<()> {
        Ok(())
    }

    async fn remind(user: i64) -> io::Result<()> {
        Ok(())
    }

    async fn activate(tx: &mut sqlx::PgConnection, user: i64, plan: &str) -> sqlx::Result<()> {
        Ok(())
    }

    impl Handler for SignUp {
        async fn run(self, cx: &Durable) -> JobResult {
            cx.step("welcome", welcome(self.user)).await?;
            cx.sleep("trial", days(12)).await;
            cx.step("remind", remind(self.user)).await?;
            if let Some(plan) = cx.receive::<String>("paid").timeout(days(2)).await {
                cx.step_tx("activate", async |tx| activate(tx, self.user, &plan).await).await?;
            }
            Ok(())
        }
    }
}

mod dbos {
    use super::*;

    #[job(name = "guide_checkout_with_refund", durable)]
    #[derive(Serialize, Deserialize)]
    struct Checkout {
        order: i64,
    }

    #[derive(Deserialize)]
    struct Paid {}

    async fn charge(order: i64, key: String) -> io::Result<()> {
        Ok(())
    }

    async fn refund(order: i64, key: String) -> io::Result<()> {
        Ok(())
    }

    async fn mail(order: i64) -> io::Result<()> {
        Ok(())
    }

    impl Handler for Checkout {
        async fn run(self, cx: &Durable) -> JobResult {
            cx.step("charge", charge(self.order, cx.key("charge"))).await?;
            let paid: Option<Paid> = cx.receive("paid").timeout(days(3)).await;
            if paid.is_none() {
                cx.step("refund", refund(self.order, cx.key("refund"))).await?;
            }
            cx.sleep("pause", Duration::from_secs(60)).await;
            cx.step("mail", mail(self.order)).await?;
            Ok(())
        }
    }
}

mod oban {
    use queue_core::flow::{Flow, NodeOutput};

    use super::*;

    #[job(name = "guide_oban_fetch", output = String, send_only)]
    #[derive(Serialize, Deserialize)]
    struct Fetch {
        id: i64,
    }

    #[job(name = "guide_oban_parse", send_only)]
    #[derive(Serialize, Deserialize)]
    struct Parse {
        page: NodeOutput<String>,
    }

    #[job(name = "guide_oban_index", send_only)]
    #[derive(Serialize, Deserialize)]
    struct Index {
        page: NodeOutput<String>,
    }

    #[job(name = "guide_oban_mail", send_only)]
    #[derive(Serialize, Deserialize)]
    struct Mail {
        id: i64,
    }

    async fn enqueue(mut tx: sqlx::PgTransaction<'_>, id: i64) -> Result<(), Error> {
        let mut flow = Flow::new("page");
        let fetch = flow.add("fetch", Fetch { id });
        let parse = flow.add("parse", Parse { page: fetch.output() });
        let index = flow.add("index", Index { page: fetch.output() });
        flow.add("mail", Mail { id }).after(&parse).after(&index);
        flow.enqueue(&mut tx).await?;
        Ok(())
    }
}

mod sidekiq {
    use queue_core::flow::{Counts, Flow, NodeOutput};

    use super::*;

    #[job(name = "guide_sidekiq_import_row", send_only)]
    #[derive(Serialize, Deserialize)]
    struct ImportRow {
        row: String,
    }

    #[job(name = "guide_sidekiq_imported", send_only)]
    #[derive(Serialize, Deserialize)]
    struct Imported {
        file: String,
        rows: NodeOutput<Counts>,
    }

    #[rustfmt::skip]
    async fn enqueue(mut tx: sqlx::PgTransaction<'_>, file: String, rows: Vec<String>) -> Result<(), Error> {
        let mut flow = Flow::new("import");
        let import = flow.add_all("rows", rows.into_iter().map(|row| ImportRow { row }));
        flow.add("imported", Imported { file, rows: import.output() });            // NodeOutput<Counts>
        flow.enqueue(&mut tx).await?;
        Ok(())
    }
}
