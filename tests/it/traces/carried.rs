//! Tests the trace context of a job. The context set by the caller takes precedence. Unsampled spans, oversized values and malformed
//! values are dropped.

use opentelemetry_sdk::trace::Sampler;
use queue_core::{Job as _, JobState};
use serde_json::{Value, json};
use tests::{Act, Do, TestDb};

use super::{Collector, attribute, links, meta};

const THEIRS: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

#[tokio::test]
async fn without_a_trace_or_with_an_unsampled_one_a_job_carries_nothing() {
    let db = TestDb::new().await;
    let untraced = quick().enqueue(&db.pool).await.unwrap();
    let collector = Collector::sampling(Sampler::AlwaysOff);
    let unsampled = quick().enqueue(&db.pool).await.unwrap();
    let all = Do::enqueue_all([quick()], &db.pool).returning_ids().await.unwrap();
    for job in [untraced, unsampled].iter().chain(&all) {
        assert_eq!(meta(&db, job.id()).await, None, "it goes the way of plain jobs");
    }
    db.run_until_idle(db.worker().register::<Do>()).await;
    assert_eq!(collector.all(), []);
    db.finish().await;
}

#[tokio::test]
async fn the_callers_trace_context_wins() {
    let (db, collector) = (TestDb::new().await, Collector::start());
    let job = quick().enqueue(&db.pool).meta("traceparent", THEIRS).meta("tracestate", "a=1").await.unwrap();
    assert_eq!(meta(&db, job.id()).await, Some(json!({"traceparent": THEIRS, "tracestate": "a=1"})));
    let statement = "select queue.enqueue('do', $1, jsonb_build_object('meta', jsonb_build_object('traceparent', $2)))";
    sqlx::query(statement).bind(json!({"act": {"Ok": ""}})).bind(THEIRS).execute(&db.pool).await.unwrap();
    db.run_until_idle(db.worker().register::<Do>()).await;
    let attempts = collector.named("attempt default");
    assert_eq!(attempts.len(), 2);
    for attempt in &attempts {
        assert_eq!(links(attempt).iter().map(|id| format!("{id:016x}")).collect::<Vec<_>>(), ["b7ad6b7169203331"]);
    }
    let mut states: Vec<String> =
        attempts.iter().map(|attempt| attempt.links.iter().next().unwrap().span_context.trace_state().header()).collect();
    states.sort();
    assert_eq!(states, ["", "a=1"]);
    db.finish().await;
}

#[tokio::test]
async fn metadata_without_room_for_a_trace_are_stored_without_it() {
    let (db, collector) = (TestDb::new().await, Collector::start());
    let full = quick().enqueue(&db.pool).meta("a", "x".repeat(4040)).await.unwrap();
    let room = quick().enqueue(&db.pool).meta("a", "x".repeat(4000)).await.unwrap();
    let has = |meta: Option<Value>| meta.unwrap().get("traceparent").is_some();
    assert!(!has(meta(&db, full.id()).await) && has(meta(&db, room.id()).await));
    assert_eq!(collector.named("enqueue default").len(), 2, "and has its span all the same");
    db.finish().await;
}

#[tokio::test]
async fn an_invalid_trace_fails_no_job_and_is_no_link() {
    let (db, collector) = (TestDb::new().await, Collector::start());
    let wrong = [json!("secret-nonsense"), json!(7), json!({"a": [1]}), json!(null), json!(THEIRS.to_uppercase()), json!("é".repeat(60))];
    for traceparent in &wrong {
        let statement = "select queue.enqueue('do', $1, jsonb_build_object('meta', jsonb_build_object('traceparent', $2)))";
        sqlx::query(statement).bind(json!({"act": {"Ok": ""}})).bind(traceparent).execute(&db.pool).await.unwrap();
    }
    let long = format!("a={}", "x".repeat(600));
    let job = quick().enqueue(&db.pool).meta("traceparent", THEIRS).meta("tracestate", long).await.unwrap();
    db.run_until_idle(db.worker().register::<Do>()).await;
    let attempts = collector.named("attempt default");
    assert_eq!(attempts.len(), wrong.len() + 1);
    for attempt in attempts {
        let is_last = attribute(&attempt, "job") == Some(job.id().to_string());
        assert_eq!(links(&attempt).len(), usize::from(is_last), "{attempt:?}");
        assert!(attempt.links.iter().all(|link| link.span_context.trace_state().header().is_empty()), "a state too long is left out");
        assert_eq!(attribute(&attempt, "outcome").as_deref(), Some("ok"));
    }
    assert!(!format!("{:?}", collector.all()).contains("secret-nonsense"));
    assert_eq!(db.state(job.id()).await, Some(JobState::Completed));
    db.finish().await;
}
