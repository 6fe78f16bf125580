//! Tests how the dashboard and its API show the children, maps and signals of durable jobs. Also tests sending a signal.

use queue_core::{Job as _, JobId, JobState, Queue};
use queue_worker::dashboard::Options;
use serde_json::{Value, json};
use tests::{Act, TestDb, eventually};

use super::{Served, enqueue};
use crate::durable::{
    db,
    family::{self, Parent, leaves, parents},
};

/// Creates a job that waits for the signal `go`, and then for two children that no worker runs.
async fn parent(db: &TestDb) -> JobId {
    let parent = Parent { count: 2, in_queue: Some("nobody".into()), signal: Some("go".into()), ..Parent::default() };
    parent.enqueue(&db.pool).await.unwrap().id()
}

async fn page(served: &Served, job: JobId) -> String {
    served.client.get(&format!("/jobs/{job}")).await.text().to_owned()
}

#[tokio::test]
async fn a_page_shows_the_children_of_a_job_and_the_parent_of_a_child_and_sends_a_signal() {
    let db = db().await;
    let parent = parent(&db).await;
    let served = Served::new(&db).await;
    let api = |of: JobId, what: &str| format!("/api/v1/jobs/{of}/{what}");
    db.run_while(db.worker().register::<Parent>().queue("default", 4), async {
        db.until(parent, JobState::Parked).await;
        let family = served.client.get(&api(parent, "children")).await.json();
        let child: JobId = family["children"][0]["id"].as_str().unwrap().parse().unwrap();
        let second = family["children"][1]["id"].as_str().unwrap().to_owned();
        assert_eq!(served.client.post(&format!("/api/v1/jobs/{second}/act"), &json!({ "act": "cancel" })).await.status, 200);
        db.until_count("select count(*) from queue.child where state is not null", 1).await;
        let expected = json!({ "parent": null, "children": [
            { "name": "leaf/0", "id": child.to_string(), "state": null, "now": "ready" },
            { "name": "leaf/1", "id": second, "state": "cancelled", "now": null },
        ] });
        assert_eq!(served.client.get(&api(parent, "children")).await.json(), expected);
        assert_eq!(served.client.get(&api(child, "children")).await.json(), json!({ "parent": parent.to_string(), "children": [] }));
        let shown = page(&served, parent).await;
        assert!(shown.contains("<bdi>leaf/0</bdi>") && shown.contains(&format!("<a href=\"/jobs/{child}\">{child}</a>")), "{shown}");
        assert!(
            shown.contains(&format!("data-act=\"{}\"", api(parent, "signals"))) && shown.contains("name=\"name\" value=\"go\""),
            "{shown}"
        );
        let shown = page(&served, child).await;
        assert!(shown.contains(&format!("<dt>parent</dt><dd><a href=\"/jobs/{parent}\">{parent}</a>")), "{shown}");
        assert!(!shown.contains("/signals\""), "what is not durable is sent none: {shown}");

        let body = json!({ "name": "go", "payload_json": "\"now\"" });
        let answer = served.client.post(&api(parent, "signals"), &body).await;
        assert_eq!((answer.status, answer.json()), (200, json!({ "text": format!("sent go to job {parent}") })));
        let first = async || Queue::new(&db.pool).job(parent).why().await.unwrap().causes.swap_remove(0);
        eventually("it waits for its child", async || first().await.message.contains("child")).await;
        let cause = first().await;
        assert!(cause.message.starts_with(&format!("it waits for its child `leaf/0` (job {child}, ready) since")), "{}", cause.message);
        assert_eq!(cause.fix, Some(format!("see why the child has not finished: `queue-worker why {child}`")));
        assert_eq!(cause.facts["children"][0]["wait"], "leaf/0 (join)");
        let message: String = sqlx::query_scalar("select message from queue.why($1)").bind(parent).fetch_one(&db.pool).await.unwrap();
        assert_eq!(message, format!("it waits for its child \"leaf/0\" (job {child}, ready)"));
        let shown = page(&served, parent).await;
        assert!(shown.contains("name=\"name\" value=\"\""), "a child is no signal: {shown}");
    })
    .await;
    let noted = Queue::new(&db.pool).audit(None, 10).await.unwrap();
    assert_eq!((noted.len(), noted[0].act.as_str(), noted[0].what.clone()), (2, "signalled", format!("job {parent}: go")));
    db.finish().await;
}

#[tokio::test]
async fn a_page_and_the_api_show_the_maps_of_a_job_and_their_outcomes() {
    let db = db().await;
    let acts = vec![family::Act::Complete, family::Act::Fail];
    let mapper = Parent { by_map: true, acts, count: 3, in_queue: Some("leaves".into()), in_flight: Some(2), ..Parent::default() };
    let parent = mapper.enqueue(&db.pool).await.unwrap().id();
    let served = Served::new(&db).await;
    let gathers = async || served.client.get(&format!("/api/v1/jobs/{parent}/gathers")).await.json();
    assert_eq!(gathers().await, json!([]), "it has mapped nothing yet");
    assert!(!page(&served, parent).await.contains("<h2>Maps</h2>"));
    db.run_while(parents(&db), db.until(parent, JobState::Parked)).await;
    let counted = |need, completed, dead| json!([{ "name": "leaf", "total": 5, "need": need, "completed": completed, "dead": dead, "cancelled": 0, "most": 2 }]);
    assert_eq!(gathers().await, counted(5, 0, 0));
    let row = |cells: [u32; 6]| format!("<bdi>leaf</bdi></td>{}</tr>", cells.map(|cell| format!("<td class=\"n\">{cell}</td>")).concat());
    let shown = page(&served, parent).await;
    assert!(shown.contains("<h2>Maps</h2>") && shown.contains(&row([5, 0, 0, 0, 5, 2])), "{shown}");
    db.run_while(leaves(&db, "leaves"), eventually("all are counted", async || gathers().await == counted(0, 4, 1))).await;
    let shown = page(&served, parent).await;
    assert!(shown.contains(&row([5, 4, 1, 0, 0, 2])), "{shown}");
    db.finish().await;
}

#[tokio::test]
async fn a_signal_by_the_api_is_stored_verbatim_and_refused_where_operations_are() {
    let db = db().await;
    let parent = parent(&db).await;
    let served = Served::new(&db).await;
    let path = format!("/api/v1/jobs/{parent}/signals");
    let post = async |body: Value| served.client.post(&path, &body).await.status;
    assert_eq!(post(json!({ "name": "a", "payload": { "id": 9_007_199_254_740_993_i64 } })).await, 200);
    assert_eq!(post(json!({ "name": "b", "payload_json": " {\"id\": 9007199254740993} " })).await, 200);
    assert_eq!(post(json!({ "name": "c" })).await, 200);
    let signals = served.client.get(&path).await.json();
    let names: Vec<&str> = signals.as_array().unwrap().iter().map(|signal| signal["name"].as_str().unwrap()).collect();
    assert_eq!((names, signals[0].get("payload")), (vec!["a", "b", "c"], None));
    let kept: Vec<Option<String>> =
        sqlx::query_scalar("select payload::text from queue.signal order by seq").fetch_all(&db.pool).await.unwrap();
    assert_eq!(kept, [Some("{\"id\": 9007199254740993}".to_owned()), Some("{\"id\": 9007199254740993}".to_owned()), None]);

    for wrong in [
        json!({ "name": "" }),
        json!({ "name": "x (join)" }),
        json!({ "name": "x".repeat(201) }),
        json!({ "name": "x", "payload_json": "{no" }),
        json!({ "name": "x", "payload_json": "12345678901234567890.10" }),
        json!({ "name": "x", "payload": 1, "payload_json": "1" }),
        json!({ "name": "x", "pay": 1 }),
        json!({}),
    ] {
        assert_eq!(post(wrong.clone()).await, 400, "{}", wrong.to_string().chars().take(99).collect::<String>());
    }
    assert_eq!(post(json!({ "name": "x", "payload": "y".repeat(300_000) })).await, 413);
    let (json, text) = (("Content-Type", "application/json"), "{\"name\":\"x\"}");
    for (headers, expected) in
        [(vec![], 403), (vec![json, ("Origin", "http://evil.example")], 403), (vec![json, ("Sec-Fetch-Site", "cross-site")], 403)]
    {
        assert_eq!(served.client.ask("POST", &path, &headers, text).await.status, expected, "{headers:?}");
    }
    let closed = Served::with(&db, Options::default().token("correct horse battery staple")).await;
    assert_eq!(closed.client.post(&path, &json!({ "name": "x" })).await.status, 401);
    let reading = Served::with(&db, Options::default().read_only(true)).await;
    assert_eq!(reading.client.post(&path, &json!({ "name": "x" })).await.status, 403);
    let shown = page(&reading, parent).await;
    assert!(shown.contains("<bdi>a</bdi>") && !shown.contains("data-act"), "{shown}");
    assert_eq!(served.client.post("/api/v1/jobs/7/signals", &json!({ "name": "x" })).await.status, 404);
    for what in ["children", "gathers", "signals"] {
        assert_eq!(served.client.get(&format!("/api/v1/jobs/7/{what}")).await.status, 404);
    }
    assert_eq!(db.count("select count(*) from queue.signal").await, 3, "nothing else was sent");

    let finished = enqueue(&db, Act::Ok("x".into())).await;
    let refused = served.client.post(&format!("/api/v1/jobs/{finished}/signals"), &json!({ "name": "x" })).await;
    assert_eq!((refused.status, refused.json()["error"].as_str().unwrap().contains("not durable")), (409, true));
    db.run_while(db.worker(), db.until(finished, JobState::Completed)).await;
    let refused = served.client.post(&format!("/api/v1/jobs/{finished}/signals"), &json!({ "name": "x" })).await;
    assert_eq!((refused.status, refused.json()["error"].as_str().unwrap().contains("has finished")), (409, true));
    let noted = Queue::new(&db.pool).audit(None, 10).await.unwrap();
    assert_eq!(noted.len(), 3, "what was refused is not noted: {noted:?}");
    db.finish().await;
}
