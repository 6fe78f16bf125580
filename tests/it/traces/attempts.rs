//! Tests the span of an attempt: the link to the enqueue, the attributes, and the end.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use opentelemetry::trace::SpanKind;
use queue_core::{
    Context, Failure, Handler, Job as _, JobRef, JobResult, JobState, Keyring,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
    options::{Outcome, TraceRelation},
    testing,
};
use serde::{Deserialize, Serialize};
use sqlx::Executor as _;
use tests::{Act, Do, TestDb, Within};
use tracing::Instrument as _;

use super::{Collector, attribute, error_of, is_root, links};

/// Job that enqueues another job.
#[job(name = "traces_parent", send_only)]
#[derive(Serialize, Deserialize)]
struct Parent;

impl Handler for Parent {
    async fn run(self, cx: &Context) -> JobResult {
        Do { act: Act::Ok(String::new()) }.enqueue(cx.pool()).queue("children").await?;
        Ok(())
    }
}

#[job(name = "traces_batched", send_only, batch = 10, batch_wait = "200ms")]
#[derive(Serialize, Deserialize)]
struct Batched {
    fails: bool,
}

impl BatchHandler for Batched {
    async fn run(batch: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
        for job in batch.iter_mut() {
            if job.payload().fails {
                job.fail(Failure::terminal("one of them"));
            }
        }
        Ok(())
    }
}

fn act(act: Act) -> Do {
    Do { act }
}

#[tokio::test]
async fn each_attempt_begins_a_trace_with_a_link_to_the_enqueue() {
    let (db, collector) = (TestDb::new().await, Collector::start());
    let job = act(Act::FailUntil(2)).enqueue(&db.pool).queue("mail").await.unwrap();
    db.run_while(db.worker().register::<Do>(), db.until(job.id(), JobState::Completed)).await;
    let (enqueue, attempts) = (collector.only("enqueue mail"), collector.named("attempt mail"));
    assert_eq!(attempts.len(), 2);
    for (attempt, number) in attempts.iter().zip(["1", "2"]) {
        assert!(attempt.span_kind == SpanKind::Consumer && is_root(attempt), "{attempt:?}");
        assert_ne!(attempt.span_context.trace_id(), enqueue.span_context.trace_id());
        assert_eq!(links(attempt), [enqueue.span_context.span_id()]);
        for (key, value) in [
            ("messaging.system", "postgresql"),
            ("messaging.operation.name", "attempt"),
            ("messaging.operation.type", "process"),
            ("messaging.destination.name", "mail"),
            ("messaging.message.id", &*job.id().to_string()),
            ("messaging.message.delivery_attempt", number),
            ("job_type", "do"),
        ] {
            assert_eq!(attribute(attempt, key).as_deref(), Some(value), "{key}");
        }
    }
    assert!(error_of(&attempts[0]).is_some() && error_of(&attempts[1]).is_none());
    assert_eq!([&attempts[0], &attempts[1]].map(|attempt| attribute(attempt, "outcome")), [Some("failed".into()), Some("ok".into())]);
    db.finish().await;
}

#[tokio::test]
async fn a_worker_may_make_attempts_children_of_their_enqueue() {
    let (db, collector) = (TestDb::new().await, Collector::start());
    let job = act(Act::Ok(String::new())).enqueue(&db.pool).await.unwrap();
    let worker = db.worker().register::<Do>().trace(TraceRelation::Child);
    db.run_while(worker, db.until(job.id(), JobState::Completed)).await;
    let (enqueue, attempt) = (collector.only("enqueue default"), collector.only("attempt default"));
    assert_eq!(attempt.parent_span_id, enqueue.span_context.span_id());
    assert_eq!(attempt.span_context.trace_id(), enqueue.span_context.trace_id());
    assert_eq!(links(&attempt), []);
    db.finish().await;
}

#[tokio::test]
async fn a_span_records_how_its_attempt_ended_and_errors_only_for_failures() {
    let (db, collector) = (TestDb::new().await, Collector::start());
    let snooze = act(Act::Snooze(1, 2)).enqueue(&db.pool).queue("snooze").await.unwrap().id();
    for (queue, what) in [
        ("fail", Act::Terminal("no way".to_owned())),
        ("retry", Act::First(Box::new(Act::RetryIn(1)), Box::new(Act::Ok(String::new())))),
        ("panic", Act::Panic),
        ("long", Act::FailLong(8000)),
    ] {
        act(what).enqueue(&db.pool).queue(queue).max_attempts(if queue == "retry" { 2 } else { 1 }).await.unwrap();
    }
    db.run_while(db.worker().register::<Do>(), db.until(snooze, JobState::Completed)).await;
    db.run_until_idle(db.worker().register::<Do>()).await;
    let first = |queue: &str| {
        let span = collector.named(&format!("attempt {queue}")).remove(0);
        (attribute(&span, "outcome").unwrap(), attribute(&span, "error.type"), error_of(&span).unwrap_or_default().to_owned())
    };
    assert_eq!(first("fail"), ("terminal".into(), Some("terminal".into()), "no way".into()));
    let (outcome, _, error) = first("panic");
    assert!(outcome == "panicked" && error.contains("panicked: "), "{outcome}: {error}");
    assert_eq!((first("snooze").0, first("snooze").1), ("snoozed".into(), None));
    assert_eq!(first("retry").0, "retry_in");
    assert!((1000..=1024).contains(&first("long").2.len()), "errors are cut");
    db.finish().await;
}

#[tokio::test]
async fn a_timeout_is_an_error_and_a_cancelled_attempt_is_none() {
    #[job(name = "traces_slow", send_only, timeout = "10ms", max_attempts = 1)]
    #[derive(Serialize, Deserialize)]
    struct Slow;

    impl Handler for Slow {
        async fn run(self, _: &Context) -> JobResult {
            std::future::pending().await
        }
    }
    let (db, collector) = (TestDb::new().await, Collector::start());
    let (slow, hang) = (Slow.enqueue(&db.pool).await.unwrap().id(), act(Act::Hang).enqueue(&db.pool).await.unwrap().id());
    let worker = db.worker().register::<Slow>().register::<Do>().cancel_grace(Duration::from_millis(1));
    db.run_while(worker, async {
        db.until(slow, JobState::Dead).await;
        db.until(hang, JobState::Running).await;
        JobRef::from_id(hang).cancel(&db.pool).await.unwrap();
        db.until(hang, JobState::Cancelled).await;
    })
    .await;
    let of = |job: queue_core::JobId| {
        let spans = collector.named("attempt default");
        spans.into_iter().find(|span| attribute(span, "job") == Some(job.to_string())).unwrap()
    };
    assert_eq!((attribute(&of(slow), "outcome").unwrap(), error_of(&of(slow)).is_some()), ("timed_out".into(), true));
    assert_eq!((attribute(&of(hang), "outcome").unwrap(), error_of(&of(hang))), ("cancelled".into(), None));
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_a_handler_enqueues_comes_from_the_attempt() {
    let (db, collector) = (TestDb::new().await, Collector::start());
    Parent.enqueue(&db.pool).queue("parents").await.unwrap();
    db.run_until_idle(db.worker().register::<Parent>().register::<Do>()).await;
    let (parent, enqueue) = (collector.only("attempt parents"), collector.only("enqueue children"));
    assert_eq!(enqueue.parent_span_id, parent.span_context.span_id());
    assert_eq!(enqueue.span_context.trace_id(), parent.span_context.trace_id());
    assert_eq!(links(&collector.only("attempt children")), [enqueue.span_context.span_id()]);
    db.finish().await;
}

#[tokio::test]
async fn transactional_jobs_and_batches_are_traced_as_all_others() {
    let (db, collector) = (TestDb::new().await, Collector::start());
    let within = Within { how: "ok".to_owned() }.enqueue(&db.pool).queue("within").await.unwrap();
    let jobs =
        Batched::enqueue_all([false, true, false].map(|fails| Batched { fails }), &db.pool).queue("batched").returning_ids().await.unwrap();
    let worker = db.worker().register::<Within>().register_batch::<Batched>();
    db.run_while(worker, async {
        db.until(within.id(), JobState::Completed).await;
        db.until(jobs[1].id(), JobState::Dead).await;
        db.until(jobs[2].id(), JobState::Completed).await;
    })
    .await;
    assert_eq!(links(&collector.only("attempt within")), [collector.only("enqueue within").span_context.span_id()]);
    let origin = collector.only("enqueue batched").span_context.span_id();
    let batches = collector.named("attempt batched");
    assert_eq!(batches.iter().map(|batch| links(batch).len()).sum::<usize>(), 3, "a link for each job: {batches:?}");
    assert!(batches.iter().flat_map(links).all(|link| link == origin));
    assert_eq!(batches.iter().filter(|batch| error_of(batch).is_some_and(|error| error.ends_with("jobs failed"))).count(), 1);
    db.finish().await;
}

#[tokio::test]
async fn the_outcome_of_a_transactional_attempt_is_recorded_once_its_transaction_has_ended() {
    #[job(name = "traces_cut", send_only, transactional)]
    #[derive(Serialize, Deserialize)]
    struct Cut;

    impl Handler for Cut {
        async fn run(self, cx: &Context) -> JobResult {
            static IS_CUT: AtomicBool = AtomicBool::new(false);
            if !IS_CUT.swap(true, Relaxed) {
                // The handler ignores the error from its terminated connection.
                let _ = cx.transaction().await.execute("select pg_terminate_backend(pg_backend_pid())").await;
            }
            Ok(())
        }
    }
    let (db, collector) = (TestDb::new().await, Collector::start());
    let cut = Cut {}.enqueue(&db.pool).queue("cut").await.unwrap().id();
    let deferred = Within { how: "deferred".to_owned() }.enqueue(&db.pool).queue("deferred").await.unwrap().id();
    let broken = Within { how: "rollback by hand".to_owned() }.enqueue(&db.pool).queue("broken").await.unwrap().id();
    db.run_while(db.worker().register::<Within>().register::<Cut>(), async {
        db.until(cut, JobState::Completed).await;
        db.until(deferred, JobState::Dead).await;
        db.until(broken, JobState::Dead).await;
    })
    .await;
    let outcomes = |name| collector.named(name).iter().map(|span| attribute(span, "outcome").unwrap_or_default()).collect::<Vec<_>>();
    assert_eq!(outcomes("attempt cut"), ["failed", "ok"]);
    assert!(error_of(&collector.named("attempt cut")[0]).is_some_and(|error| error.contains("cannot be committed")));
    assert_eq!(outcomes("attempt deferred"), ["failed", "failed"]);
    // After the rollback of the handler's transaction, the job may be claimed again before the failure is written. More than two attempts
    // are therefore possible.
    assert!(outcomes("attempt broken").len() >= 2 && outcomes("attempt broken").iter().all(|outcome| outcome == "failed"));
    let errors: Vec<_> = collector.named("attempt deferred").iter().map(|span| error_of(span).unwrap_or_default().to_owned()).collect();
    assert!(errors.iter().all(|error| error.contains("cannot be committed")), "{errors:?}");
    db.finish().await;
}

#[tokio::test]
async fn the_error_of_a_sealed_job_is_in_no_span() {
    #[job(name = "traces_sealed", send_only, seal = "traces", max_attempts = 1)]
    #[derive(Serialize, Deserialize)]
    struct Sealed {
        card: String,
    }

    impl Handler for Sealed {
        async fn run(self, _: &Context) -> JobResult {
            Err(format!("the card {} is refused", self.card).into())
        }
    }
    queue_core::use_keyring("traces", Keyring::new("first", queue_core::Secret::new([7; 32]))).unwrap();
    let (db, collector) = (TestDb::new().await, Collector::start());
    let job = Sealed { card: "4711-0815".to_owned() }.enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker().register::<Sealed>(), db.until(job.id(), JobState::Dead)).await;
    assert!(error_of(&collector.only("attempt default")).is_some_and(str::is_empty), "its failure is recorded");
    assert!(!format!("{:?}", collector.all()).contains("4711"));
    db.finish().await;
}

#[job(name = "traces_refused", send_only)]
#[derive(Serialize, Deserialize)]
struct Refused;

impl Handler for Refused {
    async fn run(self, _: &Context) -> JobResult {
        Err(Failure::terminal("no way"))
    }
}

#[tokio::test]
async fn the_test_kit_runs_handlers_in_the_same_span() {
    let collector = Collector::start();
    let ran = testing::run(Refused).into_future().instrument(tracing::info_span!("test")).await;
    assert_eq!(ran.outcome, Outcome::Terminal);
    let span = collector.only("attempt default");
    assert_eq!((error_of(&span), attribute(&span, "messaging.message.id").as_deref()), (Some("no way"), Some("1")));
}
