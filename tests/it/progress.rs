//! Tests progress reports of running jobs. Reports become visible quickly, are written at a limited rate, and are fenced by the lease.
//! The next attempt receives the last report.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use queue_core::{Context, Error, Handler, Job as _, JobHandle, JobId, JobResult, JobState, PayloadError, Reporter, job, wait::Progress};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::Executor as _;
use tests::{Steps, TestDb, WorkerProcess, effects, eventually};

/// Defines a job type whose handler runs a block with its context. Each test registers a type with its own name.
macro_rules! job_that {
    ($name:ident, $cx:ident, $what:block) => {
        #[job(send_only, max_attempts = 3, backoff = fixed("1ms"), timeout = "60s")]
        #[derive(Serialize, Deserialize)]
        struct $name;
        impl Handler for $name {
            async fn run(self, $cx: &Context) -> JobResult {
                $what
            }
        }
    };
}

fn worker(db: &TestDb) -> Worker {
    Worker::new(db.pool.clone()).lease_ttl(Duration::from_secs(5)).grace(Duration::from_secs(2))
}

/// Records every insert and update statement on the table `progress`, and every row that the statement writes.
async fn log_writes(db: &TestDb) {
    let log = "create table write (row boolean);
      create function log_write() returns trigger language plpgsql as $$ begin insert into public.write values (tg_level = 'ROW'); return null; end $$;
      create trigger log_rows after insert or update on queue.progress for each row execute function public.log_write();
      create trigger log_statements after insert or update on queue.progress for each statement execute function public.log_write();";
    db.pool.execute(log).await.unwrap();
}

async fn rows(db: &TestDb) -> i64 {
    db.count("select count(*) from queue.progress").await
}

/// Waits until the test releases the handler.
async fn released(cx: &Context) -> JobResult {
    while !sqlx::query_scalar::<_, bool>("select to_regclass('go') is not null").fetch_one(cx.pool()).await? {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn go(db: &TestDb) {
    db.pool.execute("create table go ()").await.unwrap();
}

/// The database rejects a character of the report, as a database with a smaller character set would.
#[tokio::test]
async fn a_report_refused_by_the_database_is_a_refusal_and_not_a_connection_error() {
    job_that!(Keeps, cx, {
        cx.checkpoint(&"kept").await?;
        Ok(())
    });
    let db = TestDb::new().await;
    let refuses = "create function refuse() returns trigger language plpgsql as
        $$ begin raise untranslatable_character using message = 'there is no such character'; end $$;
        create trigger refuses before insert or update on queue.progress for each row execute function refuse();";
    sqlx::raw_sql(refuses).execute(&db.pool).await.unwrap();
    let job = Keeps.enqueue(&db.pool).max_attempts(1).await.unwrap();
    db.run_until_idle(worker(&db).register::<Keeps>()).await;
    let error = job.find(&db.pool).await.unwrap().error.unwrap();
    assert!(error.contains("there is no such character") && !error.contains("unreachable"), "{error}");
    db.finish().await;
}

#[tokio::test]
async fn a_completed_job_has_full_progress_for_operators_too() {
    job_that!(AlmostThere, cx, {
        cx.progress(0.99);
        Ok(())
    });
    let db = TestDb::new().await;
    let job = AlmostThere.enqueue(&db.pool).await.unwrap();
    db.run_until_idle(worker(&db).register::<AlmostThere>()).await;
    let progress = job.find(&db.pool).await.unwrap().progress.unwrap();
    assert_eq!((progress.fraction, progress.over), (Some(1.0), Some(JobState::Completed)));
    db.finish().await;
}

#[tokio::test]
async fn reports_of_a_job_are_seen_live_and_the_stream_ends_with_the_job() {
    job_that!(Speaks, cx, {
        cx.progress(0.4);
        cx.stage("thumbnails");
        cx.event("image");
        cx.event_by("image", 2);
        released(cx).await?;
        cx.event("last");
        Ok(())
    });
    let db = TestDb::new().await;
    let queue = db.queue();
    let job = Speaks.enqueue(&db.pool).await.unwrap();
    assert_eq!(job.progress(&db.pool).await.unwrap(), Progress::default(), "nothing yet");
    let (mut there, mut here) = (job.watch(&queue), queue.job(job.id()).watch());
    for watch in [&mut there, &mut here] {
        assert_eq!(watch.next().await.unwrap().unwrap(), Progress::default());
    }
    db.run_while(worker(&db).register::<Speaks>(), async {
        for watch in [&mut there, &mut here] {
            let mut seen = watch.next().await.unwrap().unwrap();
            // The first write may happen while the handler is still reporting on its own thread, so the first values may be incomplete.
            while seen.counts.get("image") != Some(&3) {
                seen = watch.next().await.unwrap().unwrap();
            }
            assert_eq!((seen.fraction, seen.stage.as_deref(), seen.attempt, seen.over), (Some(0.4), Some("thumbnails"), 1, None));
            assert_eq!(seen.counts.into_iter().collect::<Vec<_>>(), [("image".to_owned(), 3)]);
        }
        let sql = "select count(*) from queue.progress where fraction = 0.4 and counts ->> 'image' = '3'";
        assert_eq!(db.count(sql).await, 1);
        let found = job.find(&db.pool).await.unwrap();
        assert_eq!(found.progress.unwrap().stage.as_deref(), Some("thumbnails"));
        go(&db).await;
        for watch in [&mut there, &mut here] {
            let mut last = None;
            while let Some(seen) = watch.next().await {
                last = Some(seen.unwrap());
            }
            let last = last.unwrap();
            assert_eq!(
                (last.fraction, last.over, last.counts["last"]),
                (Some(1.0), Some(JobState::Completed), 1),
                "reported just before the end"
            );
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn f02_texts_and_numbers_that_the_database_would_not_accept_do_no_harm() {
    job_that!(Babbles, cx, {
        for fraction in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -3.0, 7.0, f64::NAN] {
            cx.progress(fraction);
        }
        cx.stage("a\0b".to_owned() + &"é".repeat(1000));
        cx.event("n\0l");
        (0..100).for_each(|n| cx.event_by(format!("{n}{}", "x".repeat(100)), u64::MAX));
        Ok(())
    });
    let db = TestDb::new().await;
    let job = Babbles.enqueue(&db.pool).await.unwrap();
    db.run_until_idle(worker(&db).register::<Babbles>()).await;
    let progress = job.progress(&db.pool).await.unwrap();
    let stage = progress.stage.unwrap();
    assert!(stage.starts_with("a\u{fffd}bé") && stage.chars().count() == 200, "{stage}");
    assert_eq!((progress.counts.len(), progress.counts["n\u{fffd}l"], progress.counts["others"]), (33, 1, i64::MAX.unsigned_abs()));
    assert_eq!(db.count("select count(*) from queue.progress where fraction = 1").await, 1);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn the_checkpoint_of_a_killed_process_is_passed_to_the_next_attempt() {
    let db = TestDb::new().await;
    let job = Steps { steps: 6, hold: Some(3) }.enqueue(&db.pool).await.unwrap();
    let process = WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[]);
    eventually("four steps are done and kept", async || db.count("select count(*) from queue.progress where checkpoint = '4'").await == 1)
        .await;
    db.kill(process).await;
    let left = db.run_while(worker(&db).register::<Steps>(), job.wait(&db.queue()).into_future()).await.unwrap();
    assert_eq!((left, effects(&db.pool, job.id()).await.unwrap()), (2, 6), "no step was done twice");
    let progress = job.progress(&db.pool).await.unwrap();
    assert_eq!((progress.attempt, progress.fraction, progress.counts["step"]), (2, Some(1.0), 2), "an attempt counts from zero");
    db.finish().await;
}

#[tokio::test]
async fn reports_before_a_handlers_own_commit_are_written_before_it() {
    job_that!(Commits, cx, {
        cx.stage("early");
        let tx = cx.begin().await?;
        cx.event("counted");
        tx.complete(()).await
    });
    let db = TestDb::new().await;
    let job = Commits.enqueue(&db.pool).await.unwrap();
    db.run_until_idle(worker(&db).register::<Commits>()).await;
    let progress = job.progress(&db.pool).await.unwrap();
    assert_eq!((progress.over, progress.counts["counted"]), (Some(JobState::Completed), 1));
    db.finish().await;
}

static REFUSED: AtomicBool = AtomicBool::new(false);

#[tokio::test]
async fn f33_a_zombie_writes_no_progress_and_its_checkpoint_is_refused() {
    job_that!(Haunts, cx, {
        if cx.attempt() > 1 {
            cx.stage("second");
            cx.checkpoint(&"second").await?;
            return Ok(());
        }
        cx.stage("first");
        cx.checkpoint(&"first").await?;
        released(cx).await?;
        cx.stage("zombie");
        cx.progress(0.9);
        let refused = cx.checkpoint(&"zombie").await;
        assert!(matches!(refused, Err(Error::LeaseLost { .. })), "{refused:?}");
        cx.stage("zombie still");
        assert!(matches!(cx.checkpoint(&"zombie still").await, Err(Error::LeaseLost { .. })));
        REFUSED.store(true, SeqCst);
        Ok(())
    });
    let db = TestDb::new().await;
    let job = Haunts.enqueue(&db.pool).await.unwrap();
    // The next heartbeat, which would detect the lost lease, is far in the future.
    let zombie = worker(&db).register::<Haunts>().lease_ttl(Duration::from_mins(2));
    db.run_while(zombie, async {
        eventually("it has reported something", async || rows(&db).await == 1).await;
        log_writes(&db).await;
        db.pool.execute("update queue.worker set expires_at = now() - interval '1 second'").await.unwrap();
        db.until(job.id(), JobState::Ready).await;
        go(&db).await;
        eventually("it was refused", async || REFUSED.load(SeqCst)).await;
    })
    .await;
    assert_eq!(db.count("select count(*) from write where row").await, 0);
    db.run_until_idle(worker(&db).register::<Haunts>()).await;
    let kept = "select count(*) from queue.progress where stage = 'second' and checkpoint = '\"second\"' and attempt = 2";
    assert_eq!(db.count(kept).await, 1);
    db.finish().await;
}

static LEAKED: Mutex<Option<Reporter>> = Mutex::new(None);

#[tokio::test]
async fn f52_a_report_after_the_attempt_has_returned_is_refused() {
    job_that!(Leaks, cx, {
        cx.stage("inside");
        *LEAKED.lock().unwrap() = Some(cx.reporter().clone());
        Ok(())
    });
    let db = TestDb::new().await;
    let (job, other) = (Leaks.enqueue(&db.pool).await.unwrap(), Steps { steps: 1, hold: None });
    db.run_while(worker(&db).register::<Leaks>().register::<Steps>(), async {
        job.wait(&db.queue()).await.unwrap();
        let leaked = LEAKED.lock().unwrap().take().unwrap();
        leaked.stage("outside");
        assert!(matches!(leaked.checkpoint(&1).await, Err(Error::LeaseLost { .. })));
        other.enqueue(&db.pool).await.unwrap().wait(&db.queue()).await.unwrap();
    })
    .await;
    assert_eq!(job.progress(&db.pool).await.unwrap().stage.as_deref(), Some("inside"));
    assert_eq!(db.count("select count(*) from queue.progress where checkpoint is null").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn constant_reports_of_a_job_are_written_four_times_a_second() {
    job_that!(Chatters, cx, {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(700) {
            (0..100).for_each(|_| cx.event("word"));
            tokio::task::yield_now().await;
        }
        Ok(())
    });
    let db = TestDb::new().await;
    log_writes(&db).await;
    let began = Instant::now();
    let mut jobs = Vec::new();
    for _ in 0..40 {
        jobs.push(Chatters.enqueue(&db.pool).await.unwrap());
    }
    db.run_until_idle(worker(&db).register::<Chatters>().concurrency(50)).await;
    // Maximum number of writes: one per window of 250 ms, two more at the start, and one at the end of each of the 40 attempts.
    let (windows, written) = (began.elapsed().as_millis() / 250, db.count("select count(*) from write where not row").await);
    let most = i64::try_from(windows).unwrap() + 2 + 40;
    assert!((2..=2 * most).contains(&written), "{written} statements, insert and update each, in {windows} windows");
    let rows = db.count("select count(*) from write where row").await;
    assert!((40..=40 * most).contains(&rows), "{rows} rows");
    for job in jobs {
        assert!(job.progress(&db.pool).await.unwrap().counts["word"] >= 100);
    }
    db.finish().await;
}

#[tokio::test]
async fn a_checkpoint_that_cannot_be_kept_or_read_is_an_error_of_its_own() {
    job_that!(Wrong, cx, {
        assert_eq!(cx.last_checkpoint::<u32>().await?, None);
        let nul = cx.checkpoint("a\0b").await;
        assert!(matches!(nul, Err(Error::Checkpoint { source: PayloadError::Nul { .. }, .. })), "{nul:?}");
        let large = cx.checkpoint(&"x".repeat(300_000)).await;
        assert!(matches!(large, Err(Error::Checkpoint { source: PayloadError::TooLarge { .. }, .. })), "{large:?}");
        cx.checkpoint(&"secret").await?;
        let other = cx.last_checkpoint::<u32>().await;
        assert!(matches!(&other, Err(error @ Error::CheckpointType { .. }) if !error.to_string().contains("secret")), "{other:?}");
        cx.checkpoint(&None::<u32>).await?;
        assert_eq!(cx.last_checkpoint::<Option<u32>>().await?, Some(None));
        Ok(())
    });
    let db = TestDb::new().await;
    let job = Wrong.enqueue(&db.pool).await.unwrap();
    db.run_while(worker(&db).register::<Wrong>(), async { job.wait(&db.queue()).await.unwrap() }).await;
    assert_eq!(rows(&db).await, 1);
    db.finish().await;
}

/// Rolling back a handler's transaction does not roll back its reports.
#[tokio::test]
async fn reports_of_a_transactional_handler_stay_when_its_attempt_fails() {
    #[job(send_only, transactional, max_attempts = 2, backoff = fixed("1ms"))]
    #[derive(Serialize, Deserialize)]
    struct Reports;
    impl Handler for Reports {
        async fn run(self, cx: &Context) -> JobResult {
            cx.progress(0.5);
            let before = cx.last_checkpoint::<u32>().await?;
            cx.checkpoint(&cx.attempt()).await?;
            if before == Some(1) { Ok(()) } else { Err("the first attempt".into()) }
        }
    }
    let db = TestDb::new().await;
    let job = Reports.enqueue(&db.pool).await.unwrap();
    db.run_while(worker(&db).register::<Reports>(), async { job.wait(&db.queue()).await.unwrap() }).await;
    assert_eq!(db.count("select count(*) from queue.done where attempts = 2").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn progress_goes_with_a_finished_job_and_stays_with_a_dead_letter() {
    /// Job that writes a checkpoint. With `fails`, an attempt that finds no earlier checkpoint fails.
    #[job(send_only, max_attempts = 1)]
    #[derive(Serialize, Deserialize)]
    struct Keeps {
        fails: bool,
    }
    static SEEN: Mutex<Vec<(JobId, Option<u32>)>> = Mutex::new(Vec::new());
    impl Handler for Keeps {
        async fn run(self, cx: &Context) -> JobResult {
            let last = cx.last_checkpoint().await?;
            SEEN.lock().unwrap().push((cx.id(), last));
            cx.checkpoint(&7).await?;
            if self.fails && last.is_none() { Err("as told".into()) } else { Ok(()) }
        }
    }
    async fn requeue(db: &TestDb, job: JobHandle<Keeps>) {
        job.requeue(&db.pool).await.unwrap();
    }
    let db = TestDb::new().await;
    let (dead, done) = (Keeps { fails: true }.enqueue(&db.pool).await.unwrap(), Keeps { fails: false }.enqueue(&db.pool).await.unwrap());
    db.run_until_idle(worker(&db).register::<Keeps>()).await;
    assert_eq!((db.state(dead.id()).await, rows(&db).await), (Some(JobState::Dead), 2));
    requeue(&db, done).await;
    assert_eq!(rows(&db).await, 1, "a completed job starts again");
    db.run_until_idle(worker(&db).register::<Keeps>()).await;
    assert_eq!(rows(&db).await, 2);

    db.pool.execute("update queue.progress set updated_at = now() - interval '2 minutes'").await.unwrap();
    db.run_while(worker(&db).register::<Keeps>(), async { eventually("one is pruned", async || rows(&db).await == 1).await }).await;
    assert_eq!(dead.progress(&db.pool).await.unwrap().attempt, 1);
    assert_eq!(done.progress(&db.pool).await.unwrap().fraction, Some(1.0), "without a row too");
    requeue(&db, dead).await;
    db.run_until_idle(worker(&db).register::<Keeps>()).await;
    let mut seen = std::mem::take(&mut *SEEN.lock().unwrap());
    seen.sort();
    assert_eq!(seen, [(dead.id(), None), (dead.id(), Some(7)), (done.id(), None), (done.id(), None)], "a dead letter continues");
    db.finish().await;
}
