//! Tests the test kit. An inline run returns the same verdict as a worker, and a drain writes this verdict as a worker would.

mod locked;
mod drained;
mod interrupted;

use std::{sync::Mutex, time::Duration};

use queue_core::{
    Context, Error, Failure, Handler, JobResult, TerminalExt as _, job,
    options::{Outcome, Verdict},
    testing,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Job whose payload specifies the actions of its handler.
#[job(name = "testing_say", max_attempts = 3, backoff = exponential("1s", jitter = 0.5), timeout = "1h", output = Value)]
#[derive(Debug, Serialize, Deserialize)]
struct Say {
    how: String,
}

impl Handler for Say {
    async fn run(self, cx: &Context) -> JobResult<Value> {
        match self.how.as_str() {
            "fail" => Err("as told".into()),
            "wait" => Err(Failure::retry_in(Duration::from_secs(7), "as told")),
            "terminal" => Err("as told").terminal(),
            "snooze" => Err(Failure::snooze(Duration::from_secs(9))),
            "panic" => panic!("as told"),
            "hang" => std::future::pending().await,
            "asked" => {
                cx.cancelled().cancelled().await;
                Err("cut short".into())
            }
            "pool" => Ok(sqlx::query_scalar("select jsonb '1'").fetch_one(cx.pool()).await?),
            "begin" => cx.begin().await?.complete(json!(1)).await,
            "long output" => Ok(json!("x".repeat(16 * 1024 * 1024))),
            "long error" => Err("é".repeat(8 * 1024).into()),
            "nul" => Ok(json!("a\0b")),
            "backslash" => Ok(json!("a\\u0000b")),
            "nul error" => Err("a\0b".into()),
            "report" => {
                let from = cx.last_checkpoint::<u32>().await?.unwrap_or(0);
                cx.progress(0.5);
                cx.stage("half");
                cx.event_by("seen", 3);
                cx.checkpoint(&(from + 1)).await?;
                Ok(json!(from))
            }
            "state" => {
                let mut seen = cx.state::<Mutex<Vec<u32>>>().lock().unwrap();
                seen.push(cx.attempt());
                Ok(json!({ "attempt": cx.attempt(), "last": cx.is_last_attempt() }))
            }
            other => Ok(json!(other)),
        }
    }
}

fn say(how: &str) -> testing::Run<Say> {
    testing::run(Say { how: how.to_owned() })
}

#[tokio::test]
async fn an_inline_run_has_the_verdict_that_a_worker_would_write() {
    let second = Duration::from_secs(1);
    for (how, attempt, outcome, verdict) in [
        ("yes", 1, Outcome::Ok, Verdict::Complete),
        ("fail", 1, Outcome::Failed, Verdict::Retry(second)),
        ("fail", 2, Outcome::Failed, Verdict::Retry(2 * second)),
        ("fail", 3, Outcome::Failed, Verdict::Dead),
        ("wait", 2, Outcome::RetryIn(7 * second), Verdict::Retry(7 * second)),
        ("terminal", 1, Outcome::Terminal, Verdict::Dead),
        ("snooze", 3, Outcome::Snoozed(9 * second), Verdict::Snooze(9 * second)),
        ("panic", 1, Outcome::Panicked, Verdict::Retry(second)),
        ("panic", 3, Outcome::Panicked, Verdict::Dead),
    ] {
        let ran = say(how).attempt(attempt).await;
        assert_eq!((ran.outcome, ran.verdict, ran.number), (outcome, verdict, attempt), "{how}");
    }
    assert!(say("fail").max_attempts(1).await.is_dead());
    assert_eq!(say("panic").await.error.as_deref(), Some("panicked: as told"));
    assert!(say("fail").run().await.failure().is_some());
    assert_eq!(say("snooze").await.snoozed_for(), Some(9 * second));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_an_hour_takes_no_time() {
    let ran = say("hang").await;
    assert_eq!((ran.outcome, ran.error.as_deref()), (Outcome::TimedOut, Some("timed out after 3600s")));
}

#[tokio::test]
async fn a_handler_finds_its_state_and_its_attempt() {
    let ran = say("state").state(Mutex::new(Vec::<u32>::new())).attempt(3).await;
    assert_eq!(ran.output(), json!({ "attempt": 3, "last": true }));
    assert_eq!(say("state").await.outcome, Outcome::Panicked, "no state was given, and the type does not name it");
}

#[tokio::test]
async fn f02_f17_texts_are_stored_as_by_a_worker() {
    let long = say("long output").await;
    assert!(long.is_dead() && long.error.as_deref().unwrap().starts_with("the output is longer than 16777216 bytes"), "{:?}", long.outcome);
    let cut = say("long error").await.error.clone().unwrap();
    assert_eq!((cut.len(), cut.chars().all(|letter| letter == 'é')), (8 * 1024, true));
    assert_eq!(say("nul").await.output(), json!("a\u{fffd}b"));
    assert_eq!(say("backslash").await.output(), json!("a\\u0000b"), "a backslash and what follows it is no NUL");
    assert_eq!(say("nul error").await.error.as_deref(), Some("a\u{fffd}b"));
}

#[tokio::test]
async fn reports_and_checkpoints_stay_in_memory() {
    let ran = say("report").checkpoint(&4_u32).await;
    assert_eq!((ran.output(), ran.checkpoint::<u32>()), (json!(4), Some(5)));
    assert_eq!((ran.progress.fraction, ran.progress.stage.as_deref()), (Some(0.5), Some("half")));
    assert_eq!(ran.progress.counts["seen"], 3);
    assert_eq!(say("report").await.output(), json!(0));
}

#[tokio::test]
async fn a_cancelled_handler_has_not_failed() {
    let ran = say("asked").shutting_down().await;
    assert_eq!((ran.outcome, ran.verdict), (Outcome::Interrupted, Verdict::Release));
}

#[tokio::test]
async fn without_a_database_there_is_a_clear_error() {
    let ran = say("pool").await;
    assert!(ran.error.as_deref().unwrap().contains("set one with `.pool(&pool)`"), "{:?}", ran.error);
    let ran = say("begin").await;
    let error = ran.failure().unwrap().error().unwrap().downcast_ref::<Error>();
    assert!(matches!(error, Some(Error::NoTransaction { .. })), "{error:?}");
}

#[tokio::test]
#[should_panic(expected = "the payload of `testing_say` cannot be stored: the text at `$.how` contains the character U+0000")]
async fn a_payload_that_cannot_be_stored_fails_the_test() {
    say("\0").await;
}

#[tokio::test]
#[should_panic(expected = "attempt 1 of `testing_say` did not complete: Failed: as told")]
async fn asking_a_failure_for_its_output_fails_the_test_with_its_error() {
    say("fail").await.output();
}
