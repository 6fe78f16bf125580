//! Tests invalid schedules. An invalid schedule is rejected with a suggested fix or ends with a visible error. It does not stop other
//! schedules.

use std::time::Duration;

use queue_core::{
    Queue,
    schedule::{self, Schedule},
};
use sqlx::AssertSqlSafe;
use tests::{Do, TestDb, eventually};

use super::{STORE, each_second, fires, quick, sleeper};

#[tokio::test]
#[ignore = "deep"]
async fn a_bad_schedule_stops_no_other_and_names_its_error() {
    let db = TestDb::new().await;
    let made = |name: &str, options: &str| format!("select queue.schedule('{name}', 'do', '{{\"act\": {{\"Ok\": \"\"}}}}', '{options}')");
    let cases = [
        ("a_word", "{\"cron\": \"every monday\"}", "cannot be read"),
        ("a_zone", "{\"cron\": \"* * * * *\", \"tz\": \"Europe/Atlantis\"}", "unknown time zone"),
        ("a_date", "{\"cron\": \"0 0 30 2 *\"}", "no such date"),
    ];
    for (name, options, _) in cases {
        sqlx::query(AssertSqlSafe(made(name, options))).execute(&db.pool).await.unwrap();
    }
    Queue::new(&db.pool).store(STORE()).set_capacity("full", Some(0)).await.unwrap();
    let full = each_second().job_with(&quick(), |options| {
        options.queue("full");
    });
    Queue::new(&db.pool).store(STORE()).schedule("a_full_queue").create(&full).await.unwrap();
    let conflict = each_second().job_with(&quick(), |options| {
        options.unique("one").queue("nobody");
    });
    Queue::new(&db.pool).store(STORE()).schedule("a_conflict").create(&conflict).await.unwrap();
    Queue::new(&db.pool).store(STORE()).schedule("good").create(&each_second()).await.unwrap();
    db.run_while(sleeper(&db).queue("default", 5), async {
        eventually("the good one fires", async || fires(&db, "good").await.len() >= 3).await;
        eventually("so do the others", async || fires(&db, "a_full_queue").await.len() >= 2 && fires(&db, "a_conflict").await.len() >= 2)
            .await;
        for (name, _, why) in cases {
            eventually("its error is shown", async || {
                let error = Queue::new(&db.pool).store(STORE()).schedule(name).find().await.unwrap().error;
                error.is_some_and(|error| error.contains(why))
            })
            .await;
        }
    })
    .await;
    let full = fires(&db, "a_full_queue").await;
    assert!(full.iter().all(|fire| fire.outcome == "failed" && fire.error.as_deref().unwrap().contains("at its capacity")), "{full:?}");
    let conflict = fires(&db, "a_conflict").await;
    assert!(conflict[0].outcome == "enqueued" && conflict[1..].iter().all(|fire| fire.outcome == "kept"), "{conflict:?}");
    // Once corrected, the schedule continues.
    Queue::new(&db.pool).store(STORE()).schedule("a_word").create(&each_second()).await.unwrap();
    db.run_while(sleeper(&db), async { eventually("it fires", async || !fires(&db, "a_word").await.is_empty()).await }).await;
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_lock_is_waited_for_within_the_grace_and_then_is_the_outcome_of_the_tick() {
    let db = TestDb::new().await;
    let keyed = Schedule::every(Duration::from_secs(1)).grace(Duration::from_secs(3)).job_with(&quick(), |options| {
        options.key("k");
    });
    let mut open = db.pool.begin().await.unwrap();
    queue_core::Job::enqueue(quick(), &mut open).key("k").await.unwrap();
    Queue::new(&db.pool).store(STORE()).schedule("keyed").create(&keyed).await.unwrap();
    Queue::new(&db.pool).store(STORE()).schedule("good").create(&each_second()).await.unwrap();
    db.run_while(sleeper(&db), async {
        eventually("it ends visibly", async || fires(&db, "keyed").await.iter().any(|fire| fire.outcome == "failed")).await;
        assert!(fires(&db, "good").await.len() >= 2, "others continue");
        open.rollback().await.unwrap();
        eventually("it continues", async || fires(&db, "keyed").await.iter().any(|fire| fire.outcome == "enqueued")).await;
    })
    .await;
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_wrong_call_is_refused_and_named_in_sql_and_in_rust() {
    let db = TestDb::new().await;
    for (name, job_type, options, why) in [
        ("a", "do", "{\"cron\": \"* * * * *\", \"zone\": \"UTC\"}", "unknown option \"zone\""),
        ("a", "do", "{\"cron\": \"* * * * *\", \"run_at\": \"2030-01-01\"}", "unknown option \"run_at\""),
        ("a", "do", "{\"cron\": 5}", "option cron must be a text"),
        ("a", "do", "{}", "cron and every"),
        ("a", "do", "{\"cron\": \"* * * * *\", \"every\": \"1 h\"}", "cron and every"),
        ("a", "do", "{\"every\": \"0.5 s\"}", "option every"),
        ("a", "do", "{\"every\": \"soon\"}", "option every"),
        ("a", "do", "{\"every\": \"1 year\"}", "option every"),
        ("a", "do", "{\"every\": \"1 month\"}", "use cron"),
        ("a", "do", "{\"every\": \"1 mon -1 day\"}", "use cron"),
        ("a", "do", "{\"every\": \"11 months\"}", "use cron"),
        ("a", "do", "{\"every\": \"1 h\", \"jitter\": \"2 days\"}", "option jitter"),
        ("a", "do", "{\"every\": \"1 h\", \"missed\": \"catch_up(0)\"}", "catch_up(1)"),
        ("a", "do", "{\"every\": \"1 h\", \"overlap\": \"never\"}", "skip, allow or queue"),
        ("a", "do", "{\"every\": \"1 h\", \"priority\": 40000}", "option priority"),
        ("a", "do", "[]", "a JSON object"),
        ("a b", "do", "{\"every\": \"1 h\"}", "the name has"),
        ("a", "do it", "{\"every\": \"1 h\"}", "the job type has"),
    ] {
        let call = sqlx::query("select queue.schedule($1, $2, '{}', $3::text::jsonb)").bind(name).bind(job_type).bind(options);
        let error = call.execute(&db.pool).await.unwrap_err();
        let error = error.as_database_error().unwrap();
        assert!(error.code().as_deref() == Some("22023") && error.message().contains(why), "{options}: {}", error.message());
    }
    let long = sqlx::query("select queue.schedule('a', 'do', '{}', jsonb_build_object('cron', repeat('x', 300)))").execute(&db.pool).await;
    assert!(long.unwrap_err().to_string().contains("256 bytes"));
    let big = sqlx::query("select queue.schedule('a', 'do', jsonb_build_object('x', repeat('x', 300000)), '{\"every\": 60}')")
        .execute(&db.pool)
        .await;
    assert!(big.unwrap_err().to_string().contains("the limit is"));
    let metadata =
        "select queue.schedule('a', 'do', '{}', jsonb_build_object('every', 60, 'meta', jsonb_build_object('x', repeat('x', 4090))))";
    let metadata = sqlx::query(metadata).execute(&db.pool).await;
    assert!(metadata.unwrap_err().to_string().contains("the option meta"));
    for (schedule, why) in [
        (each_second().job_json("do", &serde_json::json!({"x": ["\0"]})), "U+0000"),
        (Schedule::cron("* * * *").job(&quick()), "five fields"),
        (Schedule::cron("* * * * *"), "no job; add"),
        (Schedule::every(Duration::from_millis(10)).job(&quick()), "must be one second"),
        (each_second().missed(schedule::Missed::CatchUp(0)), "1 to 999"),
        (each_second().jitter(Duration::from_hours(48)), "jitter is 2 days"),
        (
            each_second().job_with(&quick(), |options| {
                options.after(Duration::from_secs(1));
            }),
            "left to the schedule",
        ),
    ] {
        let error = Queue::new(&db.pool).schedule("a").create(&schedule).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let wrong = sleeper(&db).schedule("a", Schedule::cron("x").job(&Do { act: tests::Act::Panic }));
    assert!(wrong.run(std::future::pending()).await.unwrap_err().to_string().contains("five fields"), "before it begins");
    assert_eq!(db.count("select count(*) from queue.schedule").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_schedule_whose_metadata_are_null_or_as_large_as_may_be_has_jobs() {
    let db = TestDb::new().await;
    let made = "select queue.schedule('null', 'do', '{}', '{\"every\": 60, \"meta\": null}'),
      queue.schedule(repeat('n', 64), 'do', '{}', jsonb_build_object('every', 60, 'meta', jsonb_build_object('x', repeat('x', 4086))))";
    sqlx::query(made).execute(&db.pool).await.unwrap();
    for name in ["null".to_owned(), "n".repeat(64)] {
        Queue::new(&db.pool).store(STORE()).schedule(&name).run_now().await.unwrap();
        assert_eq!(db.count(&format!("select count(*) from queue.job where system ->> 'schedule' = '{name}'")).await, 1);
    }
    db.finish().await;
}
