//! Code blocks of `docs/CRON.md`.

#[rustfmt::skip]
mod declared_by_the_type {
    use queue_core::job;
    use serde::{Deserialize, Serialize};

    #[job(cron = "30 4 * * MON-FRI", tz = "Europe/Berlin")] // or every = "15m"
    #[derive(Default, Serialize, Deserialize)]
    struct Nightly {}

    impl queue_core::Handler for Nightly {
        async fn run(self, _: &queue_core::Context) -> queue_core::JobResult {
            Ok(())
        }
    }
}

mod declared_by_the_worker {
    use serde::{Deserialize, Serialize};

    #[queue_core::job(name = "guide_report", send_only)]
    #[derive(Serialize, Deserialize)]
    struct Report {
        region: String,
    }

    async fn work(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
        use queue_core::schedule::{Missed, Schedule};
        use queue_worker::{Worker, shutdown_signal};

        let nightly = Schedule::cron("30 4 * * *").tz("Europe/Berlin").missed(Missed::CatchUp(3)).job(&Report { region: "eu".into() });
        Worker::new(pool).schedule("report_eu", nightly).run(shutdown_signal()).await
    }
}
