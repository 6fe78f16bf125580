//! Tests the span of an enqueue. Every kind of enqueue creates exactly one span with correct attributes.

use opentelemetry::trace::SpanKind;
use queue_core::{Batch, Handler, Job as _, JobResult, OnConflict, job};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tests::{Act, Do, TestDb};
use tracing::Instrument as _;

use super::{Collector, attribute, error_of, is_root, meta, traceparent};

#[job(name = "traces_secret", send_only)]
#[derive(Serialize, Deserialize)]
struct Secret {
    password: String,
}

impl Handler for Secret {
    async fn run(self, _: &queue_core::Context) -> JobResult {
        Ok(())
    }
}

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

#[tokio::test]
async fn an_enqueue_has_a_span_that_its_job_carries() {
    let (db, collector) = (TestDb::new().await, Collector::start());
    let job = async { quick().enqueue(&db.pool).queue("mail").await.unwrap() }.instrument(tracing::info_span!("request")).await;
    let (request, span) = (collector.only("request"), collector.only("enqueue mail"));
    assert!(span.span_kind == SpanKind::Producer && error_of(&span).is_none(), "{span:?}");
    assert_eq!(span.parent_span_id, request.span_context.span_id());
    for (key, value) in [
        ("messaging.system", "postgresql"),
        ("messaging.operation.name", "enqueue"),
        ("messaging.operation.type", "send"),
        ("messaging.destination.name", "mail"),
        ("messaging.message.id", &*job.id().to_string()),
        ("job_type", "do"),
    ] {
        assert_eq!(attribute(&span, key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(attribute(&span, "messaging.batch.message_count"), None);
    assert_eq!(meta(&db, job.id()).await, Some(json!({"traceparent": traceparent(&span)})));
    db.finish().await;
}

#[tokio::test]
async fn many_jobs_have_one_span_that_each_of_them_carries() {
    let (db, collector) = (TestDb::new().await, Collector::start());
    let all = Do::enqueue_all((0..3).map(|_| quick()), &db.pool).queue("all").returning_ids().await.unwrap();
    let mut batch = Batch::new();
    batch.add(quick()).unwrap().queue("one");
    batch.add(Secret { password: "hunter2".to_owned() }).unwrap().queue("other").meta("a", 1);
    let mixed = batch.enqueue(&db.pool).await.unwrap();
    let again = batch.enqueue(&db.pool).await.unwrap();

    let span = collector.only("enqueue all");
    assert_eq!(attribute(&span, "messaging.batch.message_count").as_deref(), Some("3"));
    for job in all {
        assert_eq!(meta(&db, job.id()).await, Some(json!({"traceparent": traceparent(&span)})));
    }
    let [first, second] = <[_; 2]>::try_from(collector.named("enqueue")).unwrap();
    assert_eq!((attribute(&first, "job_type"), attribute(&first, "messaging.destination.name")), (None, None), "they have none in common");
    assert_eq!(meta(&db, mixed[1]).await, Some(json!({"a": 1, "traceparent": traceparent(&first)})));
    assert_eq!(meta(&db, again[1]).await, Some(json!({"a": 1, "traceparent": traceparent(&second)})), "the batch is unchanged");
    assert!(!format!("{:?}", collector.all()).contains("hunter2"));
    db.finish().await;
}

#[tokio::test]
async fn a_failed_enqueue_records_its_error_and_one_without_a_new_job_names_none() {
    let (db, collector) = (TestDb::new().await, Collector::start());
    sqlx::query("select queue.set_capacity('full', 1)").execute(&db.pool).await.unwrap();
    quick().enqueue(&db.pool).queue("full").await.unwrap();
    quick().enqueue(&db.pool).queue("full").await.unwrap_err();
    assert!(quick().enqueue(&db.pool).queue("full").unless_at_capacity().await.unwrap().is_none());
    Do::enqueue_all([quick(), quick()], &db.pool).queue("full").await.unwrap_err();
    quick().enqueue(&db.pool).queue("full").max_attempts(0).await.unwrap_err();

    let spans = collector.named("enqueue full");
    let attributes: Vec<_> =
        spans.iter().map(|span| (attribute(span, "messaging.message.id").is_some(), error_of(span).unwrap_or_default())).collect();
    assert!(attributes[0] == (true, "") && attributes[2] == (false, ""), "{attributes:?}");
    assert!(!attributes[1].0 && attributes[1].1.contains("capacity") && attributes[3].1.contains("capacity"), "{attributes:?}");
    assert!(attributes[4].1.contains("max_attempts"), "{attributes:?}");

    for _ in 0..2 {
        quick().enqueue(&db.pool).queue("keyed").unique("a").on_conflict(OnConflict::Keep).await.unwrap();
    }
    let keyed: Vec<bool> =
        collector.named("enqueue keyed").iter().map(|span| super::attribute(span, "messaging.message.id").is_some()).collect();
    assert_eq!(keyed, [true, false], "the second is no new job");
    db.finish().await;
}

#[tokio::test]
async fn an_enqueue_that_is_rolled_back_has_a_correct_span() {
    let (db, collector) = (TestDb::new().await, Collector::start());
    let mut tx = db.pool.begin().await.unwrap();
    quick().enqueue(&mut tx).queue("mail").await.unwrap();
    tx.rollback().await.unwrap();
    db.run_until_idle(db.worker().register::<Do>()).await;
    let span = collector.only("enqueue mail");
    assert!(is_root(&span) && error_of(&span).is_none(), "it was enqueued, and the commit is not recorded: {span:?}");
    assert_eq!(collector.all().len(), 1, "nothing was attempted");
    assert_eq!(db.count("select count(*) from queue.job").await, 0);
    db.finish().await;
}
