//! Tests the metrics that a worker records with an OpenTelemetry meter, as the program's metric reader receives them.

use std::collections::{BTreeMap, BTreeSet};

use opentelemetry::{KeyValue, metrics::MeterProvider as _};
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, PeriodicReader, SdkMeterProvider,
    data::{AggregatedMetrics, MetricData},
};
use queue_core::Job as _;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{Act, Do, TestDb, eventually};

use super::documented;

fn has<'a>(mut attributes: impl Iterator<Item = &'a KeyValue>, name: &str, value: &str) -> bool {
    attributes.any(|attribute| attribute.key.as_str() == name && attribute.value.as_str() == value)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_meter_gets_the_same_metrics_and_the_last_ones_when_the_worker_ends() {
    let db = TestDb::new().await;
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_reader(PeriodicReader::builder(exporter.clone()).build()).build();
    for _ in 0..7 {
        Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).await.unwrap();
    }
    Do { act: Act::FailUntil(2) }.enqueue(&db.pool).await.unwrap();
    db.run_until_idle(db.worker().meter(provider.meter("queue-worker"))).await;
    tokio::task::spawn_blocking(move || provider.force_flush().unwrap()).await.unwrap();
    let (mut names, mut consumed, mut ran) = (BTreeSet::new(), BTreeMap::new(), 0);
    for resource in exporter.get_finished_metrics().unwrap() {
        for metric in resource.scope_metrics().flat_map(opentelemetry_sdk::metrics::data::ScopeMetrics::metrics) {
            names.insert((metric.name().to_owned(), metric.unit().to_owned()));
            match (metric.name(), metric.data()) {
                ("messaging.client.consumed.messages", AggregatedMetrics::F64(MetricData::Sum(sum))) => {
                    for word in ["completed", "retried"] {
                        let points = sum.data_points().filter(|point| has(point.attributes(), "queue.outcome", word));
                        consumed.extend(points.map(|point| (word, point.value())));
                    }
                }
                ("messaging.process.duration", AggregatedMetrics::F64(MetricData::Histogram(histogram))) => {
                    ran = histogram.data_points().map(opentelemetry_sdk::metrics::data::HistogramDataPoint::count).sum();
                }
                _ => {}
            }
        }
    }
    assert_eq!((consumed.get("completed"), consumed.get("retried"), ran), (Some(&8.0), Some(&1.0), 9));
    let page: BTreeSet<(String, String)> = documented().into_iter().map(|row| (row.otel, row.unit)).collect();
    let unknown: Vec<_> = names.difference(&page).collect();
    assert!(unknown.is_empty() && names.len() > 5, "{unknown:?}");
    db.finish().await;
}

/// Returns the highest reported number of completed attempts.
fn completed(exporter: &InMemoryMetricExporter) -> f64 {
    let exported = exporter.get_finished_metrics().unwrap();
    let metrics = exported
        .iter()
        .flat_map(opentelemetry_sdk::metrics::data::ResourceMetrics::scope_metrics)
        .flat_map(opentelemetry_sdk::metrics::data::ScopeMetrics::metrics);
    let sums = metrics.filter(|metric| metric.name() == "messaging.client.consumed.messages").map(|metric| match metric.data() {
        AggregatedMetrics::F64(MetricData::Sum(sum)) => {
            let completed = |tag: &opentelemetry::KeyValue| tag.key.as_str() == "queue.outcome" && tag.value.as_str() == "completed";
            let points = sum.data_points().filter(|point| point.attributes().any(completed));
            points.map(opentelemetry_sdk::metrics::data::SumDataPoint::value).sum()
        }
        other => panic!("{other:?}"),
    });
    sums.fold(0.0, f64::max)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_does_not_block_the_last_metrics() {
    let db = TestDb::new().await;
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_reader(PeriodicReader::builder(exporter.clone()).build()).build();
    // Jobs without an ordering key do not need the table `blocked`, which this session locks.
    let mut holder = PgConnection::connect(&db.url).await.unwrap();
    holder.execute("begin; lock table queue.blocked in access exclusive mode").await.unwrap();
    Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker().meter(provider.meter("queue-worker")), async {
        eventually("the job is completed", async || db.count("select count(*) from queue.done").await == 1).await;
        let waits = "select count(*) from pg_stat_activity
                     where datname = current_database() and application_name = 'queue-worker figures' and wait_event_type = 'Lock'";
        eventually("a query of the store waits", async || db.count(waits).await > 0).await;
    })
    .await;
    tokio::task::spawn_blocking(move || provider.force_flush().unwrap()).await.unwrap();
    assert!((completed(&exporter) - 1.0).abs() < f64::EPSILON);
    holder.execute("rollback").await.unwrap();
    db.finish().await;
}
