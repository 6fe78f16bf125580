//! Tests handlers that log too much or harmful text, and a log table that cannot be written.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use queue_core::{Context, Handler, Job as _, JobResult, JobState, job};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{Act, Do, TestDb, eventually};

use super::{Say, collect, logs, say};

/// Value that logs while it is being formatted, and then panics.
struct Nested(bool);

impl fmt::Debug for Nested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        tracing::info!("from within");
        assert!(!self.0, "as told");
        f.write_str("nested")
    }
}

#[job(name = "logs_nest", keep_logs = "1KiB", max_attempts = 1)]
#[derive(Serialize, Deserialize)]
struct Nest {
    panics: bool,
}

impl Handler for Nest {
    async fn run(self, _: &Context) -> JobResult {
        tracing::info!("before");
        tracing::info!(nested = ?Nested(false), "harmless");
        if self.panics {
            tracing::info!(nested = ?Nested(true), "not so");
        }
        Ok(())
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn of_very_many_lines_the_first_and_the_last_are_kept() {
    let (db, _guard) = (TestDb::new().await, collect());
    let job = say(&db, "ok", "line", 100_000).await;
    db.run_while(db.worker().register::<Say>(), db.until(job, JobState::Completed)).await;
    let log = logs(&db, job).await.remove(0);
    assert!(log.text.len() <= 4096 + 100, "{}", log.text.len());
    assert!(log.text.lines().next().unwrap().ends_with("line number=0"), "{}", log.text);
    assert!(log.text.lines().last().unwrap().ends_with("line number=99999"), "{}", log.text);
    let kept = log.text.lines().filter(|line| line.contains("line number=")).count() as i64;
    assert_eq!(kept + log.cut, 100_000);
    assert!(log.text.contains(&format!("\n[{} lines left out or cut, ", log.cut)), "{}", log.text);
    db.finish().await;
}

#[tokio::test]
async fn control_characters_in_logs_are_stored_as_visible_symbols() {
    let (db, _guard) = (TestDb::new().await, collect());
    let (job, giant) = (say(&db, "nasty", "", 0).await, say(&db, "ok", &"ä".repeat(100_000), 1).await);
    db.run_while(db.worker().register::<Say>(), async {
        db.until(job, JobState::Completed).await;
        db.until(giant, JobState::Completed).await;
    })
    .await;
    let text = logs(&db, job).await.remove(0).text;
    assert!(text.contains("nul\u{2400} red\u{241b}[31m\u{240d}\n    2026-01-01"), "{text:?}");
    assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()) && !text.contains('\u{202e}'), "{text:?}");
    assert_eq!(text.lines().filter(|line| line.starts_with("20")).count(), 1, "no line passes for another: {text:?}");
    let log = logs(&db, giant).await.remove(0);
    assert!(log.cut == 1 && log.text.len() <= 4096 + 100 && log.text.ends_with("ä number=0\n"), "{}", log.text);
    db.finish().await;
}

#[tokio::test]
async fn a_value_that_logs_or_panics_while_it_is_logged_stops_nothing() {
    let (db, _guard) = (TestDb::new().await, collect());
    let (fine, panics) =
        (Nest { panics: false }.enqueue(&db.pool).await.unwrap().id(), Nest { panics: true }.enqueue(&db.pool).await.unwrap().id());
    db.run_while(db.worker().register::<Nest>(), async {
        db.until(fine, JobState::Completed).await;
        db.until(panics, JobState::Dead).await;
    })
    .await;
    let text = logs(&db, fine).await.remove(0).text;
    assert!(text.contains("harmless nested=nested\n") && !text.contains("from within"), "{text}");
    let text = logs(&db, panics).await.remove(0).text;
    assert!(text.contains("before") && text.contains("not so"), "{text}");
    db.finish().await;
}

#[tokio::test]
async fn a_locked_table_of_logs_delays_no_job_and_the_logs_are_dropped() {
    let (db, _guard) = (TestDb::new().await, collect());
    let mut holder = PgConnection::connect_with(&db.pool.connect_options()).await.unwrap();
    holder.execute("begin; lock table queue.log in access exclusive mode").await.unwrap();
    let mut jobs = Vec::new();
    for _ in 0..20 {
        jobs.push(say(&db, "ok", "lost", 1).await);
        jobs.push(Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id());
    }
    db.run_while(db.worker().register::<Say>().register::<Do>(), async {
        for job in &jobs {
            tests::within(Duration::from_secs(30), "jobs end", async || db.state(*job).await == Some(JobState::Completed)).await;
        }
        holder.execute("rollback").await.unwrap();
        assert!(logs(&db, jobs[0]).await.is_empty(), "what could not be written in time is gone");
        // Logs that are in flight when the lock is released may still be lost, so the test tries several jobs.
        eventually("logs are kept again", async || {
            let job = say(&db, "ok", "kept", 1).await;
            db.until(job, JobState::Completed).await;
            logs(&db, job).await.len() == 1
        })
        .await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn one_refused_log_does_not_affect_others() {
    let (db, _guard) = (TestDb::new().await, collect());
    sqlx::raw_sql("alter table queue.log add constraint refuses check (text not like '%refused%')").execute(&db.pool).await.unwrap();
    let (bad, good) = (say(&db, "ok", "refused", 1).await, say(&db, "ok", "taken", 1).await);
    db.run_while(db.worker().register::<Say>(), async {
        db.until(bad, JobState::Completed).await;
        db.until(good, JobState::Completed).await;
    })
    .await;
    assert_eq!((logs(&db, bad).await.len(), logs(&db, good).await.len()), (0, 1));
    sqlx::raw_sql("alter table queue.log drop constraint refuses").execute(&db.pool).await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn the_wait_for_writing_a_log_is_not_part_of_the_attempts_duration() {
    let (db, _guard) = (TestDb::new().await, collect());
    let mut holder = PgConnection::connect_with(&db.pool.connect_options()).await.unwrap();
    holder.execute("begin; lock table queue.log in access exclusive mode").await.unwrap();
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(say(&db, "ok", "late", 1).await);
    }
    let ran = Arc::new(Mutex::new(Vec::new()));
    let durations = Arc::clone(&ran);
    let worker = db.worker().register::<Say>().concurrency(1).on_outcome(move |attempt| durations.lock().unwrap().push(attempt.ran));
    db.run_while(worker, async {
        for job in jobs {
            db.until(job, JobState::Completed).await;
        }
    })
    .await;
    // Each job waited at least a quarter of a second for its log to be written. The attempt's duration must not include that wait.
    let shortest = ran.lock().unwrap().iter().min().copied();
    assert!(shortest < Some(Duration::from_millis(200)) && ran.lock().unwrap().len() == 5, "{ran:?}");
    holder.execute("rollback").await.unwrap();
    db.finish().await;
}
