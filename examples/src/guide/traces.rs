//! Code blocks of `docs/TRACES.md`.

use queue_core::{Context, Handler, JobResult, job, options::TraceRelation};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

fn subscriber(provider: opentelemetry_sdk::trace::SdkTracerProvider) {
    use opentelemetry::trace::TracerProvider as _;
    use tracing_subscriber::{Layer as _, filter::LevelFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _};

    let traces = tracing_opentelemetry::layer().with_tracer(provider.tracer("my-app")).with_filter(LevelFilter::INFO);
    tracing_subscriber::registry().with(traces).with(queue_worker::logs()).init();
}

fn relation(pool: PgPool) -> Worker {
    Worker::new(pool).trace(TraceRelation::Child)
}

#[rustfmt::skip]
#[job(keep_logs = "64KiB")]
#[derive(Serialize, Deserialize)]
struct Import { file: String }

impl Handler for Import {
    #[rustfmt::skip]
    async fn run(self, _: &Context) -> JobResult {
        use tracing::Instrument as _;

        tracing::info!(file = self.file, "reading");                                   // stored
        tokio::spawn(async { tracing::info!("unpacked") }.in_current_span()).await?;   // stored
        tokio::spawn(async { tracing::info!("lost") }).await?;                         // outside of the span: not stored
        Ok(())
    }
}
