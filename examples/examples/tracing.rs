//! Tracing: an enqueue has a span, and each attempt has a span linked to the enqueue. Log events of the handler are stored with the
//! attempt. A real program exports spans to a collector; this example collects the spans in memory and checks them.

use opentelemetry::trace::{SpanKind, Status, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use queue_core::{Context, Handler, Job, JobResult, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// Job that charges a card. The first attempt fails, and the second succeeds.
#[job(name = "example_charge", max_attempts = 2, backoff = fixed("10ms"), keep_logs = "16KiB")]
#[derive(Serialize, Deserialize)]
struct Charge {
    order: u32,
}

impl Handler for Charge {
    async fn run(self, cx: &Context) -> JobResult {
        tracing::info!(order = self.order, "charging");
        if cx.attempt() == 1 { Err("the bank did not answer".into()) } else { Ok(()) }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let spans = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
    let which = Targets::new().with_default(LevelFilter::INFO).with_target("queue_worker", LevelFilter::DEBUG);
    let traces = tracing_opentelemetry::layer().with_tracer(provider.tracer("example")).with_filter(which);
    tracing_subscriber::registry().with(traces).with(queue_worker::logs()).init();

    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();

    let job = Charge { order: 7 }.enqueue(pool).await?;
    examples::run_until_finished(Worker::new(pool.clone()).register::<Charge>(), pool, &[job.id()]).await?;

    provider.force_flush()?;
    let all = spans.get_finished_spans()?;
    let named = |name: &str| all.iter().filter(|span| span.name == name).collect::<Vec<&SpanData>>();
    let enqueue = named("enqueue default")[0];
    let attempts = named("attempt default");
    assert_eq!(attempts.len(), 2);
    assert!(!named("claim").is_empty() && !named("settle").is_empty(), "what the worker does for all of them");
    for attempt in &attempts {
        assert_eq!(attempt.span_kind, SpanKind::Consumer);
        assert!(attempt.links.iter().any(|link| link.span_context.span_id() == enqueue.span_context.span_id()), "a link to the enqueue");
        println!("{} {:?}", attempt.name, attempt.status);
    }
    assert!(matches!(attempts[0].status, Status::Error { .. }) && attempts[1].status == Status::Unset);

    for log in queue.job(job.id()).logs().await? {
        println!("attempt {} logged:\n{}", log.attempt, log.text);
        assert!(log.text.contains("charging order=7"));
    }
    Ok(())
}
