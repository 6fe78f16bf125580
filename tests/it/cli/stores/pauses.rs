//! Tests `stores pause`, `stores resume` and `stores pauses`.

use super::*;

async fn enqueue_into(member: &Member, queue: &str) -> String {
    let id = Do { act: Act::Ok(String::new()) }.enqueue(member.pool()).store(member.store()).queue(queue).await.unwrap().id();
    StoreJob::new(member.name(), id).unwrap().to_string()
}

#[tokio::test]
#[ignore = "deep"]
async fn a_queue_is_paused_and_resumed_in_all_stores_that_answer() {
    let db = TestDb::new().await;
    let members = with_others(&db).await;
    assert_eq!(run_command(&db, &["pauses"]).1, "nothing is paused in the stores that have answered\n");
    let mut run = stores(&db, &["run"]);
    let mut worker = RunningCommand::start(run.env("QUEUE_GRACE", "1s").stderr(Stdio::null()));
    for member in &members {
        let first = enqueue_into(member, "mail").await;
        eventually("both stores are worked on", async || state(member, &first).await == Some(JobState::Completed)).await;
    }

    let (paused, code) = answer(&db, &["pause", "--queue", "mail", "--reason", "the server moves", "--wait"]);
    assert_eq!((code, paused["failed"].as_array().unwrap().len()), (Some(1), 3), "{paused}");
    for (at, store) in ["one", "two"].iter().enumerate() {
        let of = &paused["stores"][at];
        assert_eq!((&of["store"], &of["stopped"], of["number"].is_number()), (&json!(store), &true.into(), true), "{paused}");
    }
    for member in &members {
        let waits = enqueue_into(member, "mail").await;
        let runs = enqueue_into(member, "default").await;
        eventually("another queue is not paused", async || state(member, &runs).await == Some(JobState::Completed)).await;
        assert_eq!(state(member, &waits).await, Some(JobState::Ready));
    }
    let (listed, _) = answer(&db, &["pauses"]);
    for (at, store) in ["one", "two"].iter().enumerate() {
        let of = &listed["stores"][at];
        assert_eq!(
            (&of["store"], &of["paused"][0]["reason"], &of["paused"][0]["ready"]),
            (&json!(store), &"the server moves".into(), &1.into())
        );
    }
    assert!(run_command(&db, &["pauses"]).1.lines().any(|line| line.starts_with("two") && line.contains("queue mail")));

    assert_eq!(answer(&db, &["pause", "--all"]).0["stores"][0]["stopped"], false, "without `--wait`");
    let (code, out, _) = run_command(&db, &["resume", "--queue", "mail"]);
    assert!(code == Some(1) && out.starts_with("resumed queue mail in 2 stores\none: still paused"), "{out}");
    let (resumed, code) = answer(&db, &["resume", "--all"]);
    assert_eq!(
        (code, &resumed["stores"]),
        (Some(1), &json!([{ "store": "one", "paused": [] }, { "store": "two", "paused": [] }])),
        "{resumed}"
    );
    for member in &members {
        let done = member.store().sql("select count(*) from queue.jobs where state = 'completed' and queue = 'mail'");
        let both = async || sqlx::query_scalar::<_, i64>(done).fetch_one(member.pool()).await.unwrap() == 2;
        eventually("jobs of the queue run again", both).await;
    }
    let (code, out, _) = run_command(&db, &["resume", "--queue", "mail"]);
    assert_eq!((code, out.as_str()), (Some(1), "resumed queue mail in no store\n"));
    assert_eq!(worker.terminate(), Some(0));
    let acts = members[0].store().sql("select array_agg(act order by at) from queue.audit");
    assert_eq!(sqlx::query_scalar::<_, Vec<String>>(acts).fetch_one(&db.pool).await.unwrap(), ["paused", "paused", "resumed", "resumed"]);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_signal_ends_the_wait_for_workers_and_no_pause() {
    let db = TestDb::new().await;
    create_two(&db).await;
    // This worker never acknowledges a pause.
    run_sql(
        &db,
        "insert into one.worker (id, name, host, pid, version, queues, expires_at)
        values (gen_random_uuid(), 'silent', 'h', 1, '1', '{}', now() + interval '1 h')",
    )
    .await;
    let mut waiting = RunningCommand::start(stores(&db, &["pause", "--all", "--wait"]).stderr(Stdio::null()).stdout(Stdio::null()));
    eventually("both stores are paused", async || {
        let paused = "select (select count(*) from one.paused) + (select count(*) from two.paused)";
        db.count(paused).await == 2
    })
    .await;
    assert_eq!(waiting.terminate(), Some(1), "a signal ends the wait");
    assert_eq!(json_of(&db, &["pauses"])["stores"][1]["paused"].as_array().unwrap().len(), 1);
    db.finish().await;
}
