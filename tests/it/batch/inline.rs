//! Tests batch handlers in the test kit. Also tests that a registry rejects job types with incompatible options.

use std::time::Duration;

use queue_core::{
    Context, Failure, Handler, Job as _, JobResult,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
    middleware::{AttemptOutput, Middleware, Next, async_trait},
    options::{Options, Outcome},
    registry::Registry,
    testing,
};
use serde::{Deserialize, Serialize};
use tests::TestDb;

/// Batch job that returns the sum of its number and the shared state. Jobs with the numbers -1, -2 and -3 fail, snooze and hang,
/// respectively.
#[job(name = "batch_inline", batch = 5, max_attempts = 4, backoff = fixed("1s"), output = i64, timeout = "200ms")]
#[derive(Serialize, Deserialize)]
struct Add {
    number: i64,
}

fn add(number: i64) -> Add {
    Add { number }
}

impl BatchHandler for Add {
    async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
        let plus = cx.try_state::<i64>().copied().unwrap_or_default();
        for job in batch.iter_mut() {
            match job.payload().number {
                -1 => job.fail("minus one"),
                -2 => job.fail(Failure::snooze(Duration::from_secs(7))),
                -3 => std::future::pending().await,
                number if job.is_cancelled() => job.fail(format!("{number} was cancelled")),
                number => job.complete(number + plus),
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_batch_is_run_inline_and_each_job_has_its_attempt() {
    let ran = testing::run_batch([add(1), add(-1), add(2), add(-2)]).state(40_i64).attempt(2).await;
    assert_eq!(ran.outputs(), [41, 42]);
    assert_eq!((ran[1].retried_after(), ran[1].error.as_deref()), (Some(Duration::from_secs(1)), Some("minus one")));
    assert_eq!((ran[3].snoozed_for(), ran[3].number), (Some(Duration::from_secs(7)), 2));
    let ran = testing::run_batch([add(-1), add(-1)]).attempt(4).await;
    assert!(ran.iter().all(testing::Attempt::is_dead));
}

#[tokio::test]
async fn results_stay_after_a_timeout_and_after_a_cancellation() {
    let ran = testing::run_batch([add(1), add(-3), add(2)]).await;
    assert_eq!((ran[0].outcome, ran[1].outcome, ran[2].outcome), (Outcome::Ok, Outcome::TimedOut, Outcome::TimedOut));
    let ran = testing::run_batch([add(1), add(2)]).cancelled(1).await;
    assert_eq!((ran[0].outcome, ran[1].outcome), (Outcome::Ok, Outcome::Cancelled));
    let ran = testing::run_batch([add(1), add(-2), add(-1)]).shutting_down().await;
    assert!(ran.iter().all(|attempt| attempt.outcome == Outcome::Interrupted), "a failure after a cancellation is not a failure");
}

/// Middleware that fails every attempt of a job whose id ends in 2.
struct EverySecond;

#[async_trait]
impl Middleware for EverySecond {
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        if cx.id().to_string().ends_with('2') { Err("not this one".into()) } else { next.run().await }
    }
}

#[tokio::test]
async fn middleware_runs_in_the_test_kit_too() {
    let ran = testing::run_batch([add(1), add(2), add(3)]).middleware(EverySecond).await;
    assert_eq!((ran.outputs(), ran[1].error.as_deref()), (vec![1, 3], Some("not this one")));
}

#[tokio::test]
async fn a_drain_runs_each_job_in_a_batch_of_one() {
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    for number in [1, 2] {
        add(number).enqueue(&mut tx).await.unwrap();
    }
    let drained = testing::drain(&mut tx).register_batch::<Add>().await.unwrap();
    assert_eq!(drained.outputs::<Add>(), [1, 2]);
    tx.rollback().await.unwrap();
    db.finish().await;
}

/// Implements job types by hand. `#[job]` would reject most of their options.
macro_rules! by_hand {
    ($($name:ident: $options:expr;)*) => {
        $(
            #[derive(Serialize, Deserialize)]
            struct $name;

            impl queue_core::JobType for $name {
                type Output = ();
                type Cx = queue_core::Context;
                const OPTIONS: Options = $options;
            }

            impl BatchHandler for $name {
                async fn run(_: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
                    Ok(())
                }
            }
        )*
    };
}

by_hand! {
    NoBatch: Options::new("no_batch");
    OfOne: Options::new("of_one").batch(1);
    Huge: Options::new("huge").batch(10_001);
    Slow: Options::new("slow").batch(2).batch_wait(Duration::from_secs(61));
    Transactional: Options::new("transactional_batch").batch(2).transactional();
    Once: Options::new("once").batch(2).max_attempts(1);
    Fine: Options::new("fine").batch(2).batch_wait(Duration::from_mins(1));
}

impl Handler for Fine {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

#[test]
fn a_registry_refuses_incompatible_options() {
    let registries = [
        Registry::new().register_batch::<NoBatch>(),
        Registry::new().register_batch::<OfOne>(),
        Registry::new().register_batch::<Huge>(),
        Registry::new().register_batch::<Slow>(),
        Registry::new().register_batch::<Transactional>(),
        Registry::new().register_batch::<Once>(),
        Registry::new().register::<Fine>(),
    ];
    for refused in registries {
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("batch"), "{why}");
    }
    Registry::new().register_batch::<Fine>().unwrap();
}
