//! Tests operations on many jobs, queues, schedules and limits, and their audit entries.

use std::time::Duration;

use queue_core::{Job as _, JobState, Queue, Store, operate, options::Limit, schedule};
use queue_worker::dashboard::{Actor, Options, service};
use serde_json::{Value, json};
use sqlx::Executor as _;
use tests::{Act, Do, TestDb, eventually};

use super::{Served, client::Client, some_jobs};

async fn audit(client: &Client) -> Vec<Value> {
    client.get("/api/v1/audit").await.json().as_array().unwrap().clone()
}

/// Creates `many` dead letters whose errors differ only in numbers, and one dead letter with another error.
async fn dead_letters(db: &TestDb, many: usize) {
    let jobs = (0..many).map(|n| Do { act: Act::Terminal(format!("timeout after {n} ms at 'host-{n}'")) });
    Do::enqueue_all(jobs, &db.pool).await.unwrap();
    Do { act: Act::Terminal("something else".into()) }.enqueue(&db.pool).await.unwrap();
    db.run_until_idle(db.worker().concurrency(20)).await;
}

#[tokio::test]
async fn a_group_of_dead_letters_is_requeued_at_a_rate_and_counted_in_the_audit() {
    let db = TestDb::new().await;
    dead_letters(&db, 30).await;
    let served = Served::new(&db).await;
    let groups = served.client.get("/api/v1/dead/groups").await.json();
    let group = &groups["groups"][0];
    assert_eq!(
        (&group["error"], &group["jobs"], &groups["partial"]),
        (&json!("timeout after … ms at …"), &json!(30), &json!(false)),
        "{groups}"
    );
    let body = json!({ "act": "requeue", "job_type": "do", "error": group["error"], "rate": 1000 });
    let counted = served.client.post("/api/v1/dead/count", &body).await.json();
    assert_eq!((&counted["jobs"], &counted["text"]), (&json!(30), &json!("30 jobs would be requeued")));
    let unconfirmed = served.client.post("/api/v1/dead/act", &body).await;
    assert_eq!(unconfirmed.status, 400, "it shows the number first");
    let with = |at_most: u64| json!({ "act": "requeue", "job_type": "do", "error": group["error"], "rate": 1000, "at_most": at_most });
    assert_eq!(served.client.post("/api/v1/dead/act", &with(29)).await.status, 409, "there are more than were confirmed");
    assert_eq!(db.count("select count(*) from queue.dead").await, 31);
    let done = served.client.post("/api/v1/dead/act", &with(30)).await.json();
    assert_eq!((&done["jobs"], &done["goes_on"]), (&json!(30), &json!(false)), "{done}");
    assert_eq!(db.count("select count(*) from queue.dead").await, 1, "the other stays");
    let noted = audit(&served.client).await;
    assert_eq!(noted.len(), 1, "one act is one note, however many transactions it takes");
    assert_eq!((&noted[0]["act"], &noted[0]["jobs"], &noted[0]["actor"]), (&json!("requeued"), &json!(30), &json!("dashboard")));
    assert!(noted[0]["what"].as_str().unwrap().contains("timeout after"));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_long_operation_is_answered_and_continues() {
    let db = TestDb::new().await;
    dead_letters(&db, 60).await;
    let served = Served::new(&db).await;
    let body = json!({ "act": "requeue", "filter": { "state": "dead" }, "at_most": 61, "rate": 15 });
    let answer = served.client.post("/api/v1/jobs/act", &body).await.json();
    assert_eq!((&answer["goes_on"], &answer["jobs"]), (&json!(true), &json!(61)), "{answer}");
    let halfway = audit(&served.client).await[0]["jobs"].as_i64().unwrap();
    assert!((1..61).contains(&halfway), "{halfway} are counted so far");
    eventually("all are requeued", async || db.count("select count(*) from queue.dead").await == 0).await;
    eventually("all are counted", async || audit(&served.client).await[0]["jobs"] == json!(61)).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_running_operation_is_shown_and_stopped_and_frees_its_slot() {
    let db = TestDb::new().await;
    dead_letters(&db, 60).await;
    let (served, reader) = (Served::new(&db).await, Served::with(&db, Options::default().read_only(true)).await);
    assert_eq!(served.client.get("/api/v1/acts").await.json(), json!([]));
    let body = json!({ "act": "requeue", "filter": { "state": "dead" }, "at_most": 61, "rate": 1 });
    for _ in 0..4 {
        assert_eq!(served.client.post("/api/v1/jobs/act", &body).await.json()["goes_on"], json!(true));
    }
    let fifth = served.client.post("/api/v1/jobs/act", &body).await;
    assert_eq!(fifth.status, 503, "{}", fifth.text());
    let going = served.client.get("/api/v1/acts").await.json();
    assert_eq!((going.as_array().unwrap().len(), &going[0]["what"]), (4, &json!("jobs of state:dead")), "{going}");
    let page = served.client.get("/audit").await;
    let page = page.text();
    assert!(page.contains("In progress") && page.matches("/api/v1/acts/stop").count() == 4, "{page}");
    assert_eq!(reader.client.post("/api/v1/acts/stop", &json!({ "number": going[0]["number"] })).await.status, 403);
    for act in going.as_array().unwrap() {
        assert_eq!(served.client.post("/api/v1/acts/stop", &json!({ "number": act["number"] })).await.status, 200);
    }
    eventually("all have ended", async || served.client.get("/api/v1/acts").await.json() == json!([])).await;
    let left = db.count("select count(*) from queue.dead").await;
    assert!((1..61).contains(&left), "{left} are left as they were");
    assert_eq!(served.client.post("/api/v1/acts/stop", &json!({ "number": going[0]["number"] })).await.status, 404, "it has finished");
    let noted = audit(&served.client).await;
    assert_eq!((&noted[0]["act"], &noted[0]["what"]), (&json!("stopped"), &json!("requeued: jobs of state:dead")));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn an_operation_that_waits_for_a_locked_table_ends_and_frees_its_slot() {
    let db = TestDb::new().await;
    dead_letters(&db, 3).await;
    let served = Served::new(&db).await;
    let mut holder = db.pool.acquire().await.unwrap();
    holder.execute("begin; lock table queue.scheduled in access exclusive mode").await.unwrap();
    let body = json!({ "act": "cancel", "filter": { "queue": "mail" }, "at_most": 61, "rate": 1 });
    // The count before the operation also reads the locked table and times out.
    assert_eq!(served.client.post("/api/v1/jobs/act", &body).await.status, 503);
    let all = operate::Filter::default();
    let error = Queue::new(&db.pool).jobs().matching(&all).cancel().await.unwrap_err();
    assert!(error.to_string().contains("lock timeout"), "{error}");
    holder.execute("rollback").await.unwrap();
    drop(holder);
    assert_eq!(served.client.get("/api/v1/acts").await.json(), json!([]));
    db.finish().await;
}

#[tokio::test]
async fn all_jobs_of_a_filter_are_counted_and_then_cancelled() {
    let db = TestDb::new().await;
    Do::enqueue_all((0..25).map(|_| Do { act: Act::Ok("x".into()) }), &db.pool).await.unwrap();
    let kept = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).queue("mail").await.unwrap().id();
    let served = Served::new(&db).await;
    let mut body = json!({ "act": "cancel", "filter": { "queue": "default", "state": "ready" } });
    assert_eq!(served.client.post("/api/v1/jobs/count", &body).await.json()["jobs"], json!(25));
    body["at_most"] = json!(25);
    assert_eq!(served.client.post("/api/v1/jobs/act", &body).await.json()["text"], json!("25 jobs cancelled"));
    assert_eq!(
        (db.state(kept).await, audit(&served.client).await[0]["what"].clone()),
        (Some(JobState::Ready), json!("jobs of queue:default state:ready"))
    );
    for wrong in
        [json!({ "act": "requeue", "filter": { "state": "ready" }, "at_most": 1 }), json!({ "act": "cancel", "at_most": 1, "rate": 0 })]
    {
        assert_eq!(served.client.post("/api/v1/jobs/act", &wrong).await.status, 400, "{wrong}");
    }
    db.finish().await;
}

#[tokio::test]
async fn an_invalid_filter_does_not_match_all_jobs() {
    let db = TestDb::new().await;
    dead_letters(&db, 3).await;
    let served = Served::new(&db).await;
    for (path, body) in [
        ("/api/v1/jobs/act", json!({ "act": "discard", "queue": "mail", "at_most": 9 })),
        ("/api/v1/jobs/count", json!({ "act": "cancel" })),
        ("/api/v1/jobs/act", json!({ "act": "discard", "filter": { "quue": "mail" }, "at_most": 9 })),
        ("/api/v1/limits/type:do", json!({})),
        ("/api/v1/limits/type:do", json!({ "concurency": 5 })),
        ("/api/v1/queues/default/capacity", json!({})),
        ("/api/v1/queues/default/capacity", json!({ "capcity": 5 })),
    ] {
        let answer = served.client.post(path, &body).await;
        assert_eq!(answer.status, 400, "{path} {body}: {}", answer.text());
    }
    assert_eq!(db.count("select count(*) from queue.dead").await, 4);
    // Four jobs match, but the operation changes only the two jobs that were confirmed.
    let all = operate::Filter { state: Some(queue_core::JobState::Dead), ..operate::Filter::default() };
    let swept = Queue::new(&db.pool).jobs().matching(&all).discard().at_most(2).await.unwrap();
    assert_eq!((swept.done, db.count("select count(*) from queue.dead").await), (2, 2));
    db.finish().await;
}

#[tokio::test]
async fn queues_schedules_and_limits_are_changed() {
    let db = TestDb::new().await;
    let store = Store::default();
    let hourly = schedule::Schedule::cron("0 * * * *").job(&Do { act: Act::Ok("tick".into()) });
    Queue::new(&db.pool).store(store).schedule("hourly").create(&hourly).await.unwrap();
    let served = Served::new(&db).await;
    let post = async |path: &str, body: Value| served.client.post(path, &body).await.status;
    assert_eq!(post("/api/v1/pause", json!({ "queue": "mail", "reason": "x" })).await, 200);
    assert_eq!(Queue::new(&db.pool).store(store).pauses().await.unwrap().len(), 1);
    assert_eq!(post("/api/v1/pause", json!({})).await, 400, "nothing is not everything");
    assert_eq!(post("/api/v1/pause", json!({ "queue": "mail", "everything": true })).await, 400);
    assert_eq!(post("/api/v1/resume", json!({ "queue": "mail" })).await, 200);
    assert_eq!(post("/api/v1/resume", json!({ "queue": "mail" })).await, 404);
    assert_eq!(post("/api/v1/queues/mail/capacity", json!({ "capacity": 7 })).await, 200);
    assert_eq!(Queue::new(&db.pool).store(store).capacities().await.unwrap()[0].capacity, 7);
    assert_eq!(post("/api/v1/queues/%27%3B--/capacity", json!({ "capacity": 7 })).await, 400);
    for act in ["pause", "resume", "run"] {
        assert_eq!(post("/api/v1/schedules/hourly/act", json!({ "act": act })).await, 200, "{act}");
    }
    assert_eq!(Queue::new(&db.pool).store(store).schedule("hourly").ticks(9).await.unwrap().len(), 1);
    assert_eq!(post("/api/v1/schedules/none/act", json!({ "act": "run" })).await, 404);
    assert_eq!(post("/api/v1/limits/type:do", json!({ "concurrency": 2, "starts": 10, "period": 60, "reason": "y" })).await, 200);
    let figures = Queue::new(&db.pool).store(store).limits().await.unwrap()[0].figures;
    assert_eq!((figures.concurrency, figures.starts, figures.period_ms), (Some(2), Some(10), Some(60_000)));
    for wrong in [
        json!({ "starts": 10 }),
        json!({ "concurrency": -1 }),
        json!({ "starts": 1, "period": 0 }),
        json!({ "starts": 1, "period": 1e300 }),
    ] {
        assert_eq!(post("/api/v1/limits/type:do", wrong.clone()).await, 400, "{wrong}");
    }
    assert_eq!(post("/api/v1/limits/type:do/unset", json!({})).await, 200);
    assert_eq!(post("/api/v1/limits/type:do/unset", json!({})).await, 404);
    let acts: Vec<Value> = audit(&served.client).await.iter().rev().map(|of| of["act"].clone()).collect();
    let expected = ["paused", "resumed", "capacity", "paused", "resumed", "run", "limited", "unlimited"];
    assert_eq!(acts, expected, "what was refused is not noted");
    db.finish().await;
}

#[tokio::test]
async fn an_operation_and_its_audit_entry_commit_together() {
    let db = TestDb::new().await;
    let [.., dead, _] = some_jobs(&db).await;
    sqlx::query("alter table queue.audit add constraint none check (false) not valid").execute(&db.pool).await.unwrap();
    let served = Served::new(&db).await;
    assert_eq!(served.client.post(&format!("/api/v1/jobs/{dead}/act"), &json!({ "act": "requeue" })).await.status, 503);
    let all = json!({ "act": "requeue", "filter": { "state": "dead" }, "at_most": 9 });
    assert_eq!(served.client.post("/api/v1/jobs/act", &all).await.status, 503);
    assert_eq!(db.state(dead).await, Some(JobState::Dead));
    sqlx::query("alter table queue.audit drop constraint none").execute(&db.pool).await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn an_application_names_the_actor() {
    let db = TestDb::new().await;
    let [.., dead, _] = some_jobs(&db).await;
    let inside = service(db.pool.clone(), Store::default(), Options::default()).unwrap();
    let named = axum::middleware::from_fn(async |mut request: axum::extract::Request, next: axum::middleware::Next| {
        request.extensions_mut().insert(Actor("ada".to_owned()));
        next.run(request).await
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(listener.local_addr().unwrap());
    let app = axum::Router::new().nest_service("/q", inside).layer(named);
    let task = tokio::spawn(async move { axum::serve(listener, app).await });
    assert_eq!(client.post(&format!("/q/api/v1/jobs/{dead}/act"), &json!({ "act": "discard" })).await.status, 200);
    let noted = Queue::new(&db.pool).audit(None, 9).await.unwrap();
    assert_eq!((noted[0].actor.as_str(), noted[0].what.clone(), noted[0].jobs), ("ada", format!("job {dead}"), 1));
    assert!(client.get("/q/audit").await.text().contains("ada"));
    task.abort();
    db.finish().await;
}

#[tokio::test]
async fn pages_show_all_objects() {
    let db = TestDb::new().await;
    let store = Store::default();
    dead_letters(&db, 3).await;
    Queue::new(&db.pool).store(store).pause_with_reason(&operate::Scope::queue("default"), Some("the <b>move</b>")).await.unwrap();
    Queue::new(&db.pool).store(store).set_limit("type:do", Limit::new().concurrency(3).keyed(), None).await.unwrap();
    let ping = schedule::Schedule::every(Duration::from_hours(2)).job(&Do { act: Act::Ok("tick".into()) });
    Queue::new(&db.pool).store(store).schedule("ping").create(&ping).await.unwrap();
    let served = Served::new(&db).await;
    for (path, expected) in [
        ("/dead", "timeout after … ms at …"),
        ("/queues", "the &#60;b&#62;move"),
        ("/workers", "No worker"),
        ("/schedules", "every 2 h"),
        ("/limits", "type:do"),
        ("/audit", "No operations yet"),
        ("/jobs?state=dead", "Requeue all"),
    ] {
        let page = served.client.get(path).await;
        assert!(page.status == 200 && page.text().contains(expected) && !page.text().contains("<b>move"), "{path}: {}", page.text());
    }
    db.finish().await;
}
