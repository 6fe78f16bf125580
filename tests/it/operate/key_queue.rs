//! Tests that every interface shows the jobs of an ordering key in order.

use std::process::Command;

use queue_core::{Job as _, JobState, Queue, Store};
use queue_worker::dashboard::{Options, service};
use serde_json::Value;
use tests::{Act, Do, Ordered, TestDb};

#[tokio::test]
#[ignore = "deep"]
async fn jobs_of_a_key_are_found_in_order_with_the_blocking_one_and_none_of_another_key() {
    let db = TestDb::new().await;
    let keyed = async |key: &str, queue: &str, act: Act| Do { act }.enqueue(&db.pool).queue(queue).key(key).await.unwrap().id();
    let finished = keyed("acme", "default", Act::Ok("x".into())).await;
    let dead = keyed("acme", "default", Act::Terminal("no way".into())).await;
    db.run_until_idle(db.worker().register::<Ordered>()).await;
    let behind = [keyed("acme", "default", Act::Ok("x".into())).await, keyed("acme", "default", Act::Ok("y".into())).await];
    keyed("other", "default", Act::Ok("x".into())).await;
    let elsewhere = keyed("acme", "mail", Act::Ok("x".into())).await;
    let line = async |queue: &str, most: u32| Queue::new(&db.pool).jobs_of_key(queue, "acme", most).await.unwrap();
    let found: Vec<_> = line("default", 50).await.jobs.iter().map(|job| (job.id, job.state)).collect();
    assert_eq!(found, [(dead, JobState::Dead), (behind[0], JobState::Blocked), (behind[1], JobState::Blocked)], "{finished} has finished");
    let (part, whole) = (line("default", 2).await, line("default", 3).await);
    assert_eq!((part.jobs.len(), part.more, whole.jobs.len(), whole.more), (2, true, 3, false), "the rest is reported");
    assert_eq!(line("mail", 50).await.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [elsewhere]);
    assert!(Queue::new(&db.pool).jobs_of_key("default", "nobody's'; --", 50).await.unwrap().jobs.is_empty());

    let list = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_test-cli"));
        command.arg("list").args(arguments).env_remove("QUEUE_TEST_SKIPS").env("DATABASE_URL", &db.url).output().unwrap()
    };
    let listed: Value = serde_json::from_slice(&list(&["--key", "acme", "--json"]).stdout).unwrap();
    let ids: Vec<&str> = listed["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [dead, behind[0], behind[1]].map(|id| id.to_string()));
    assert_eq!(listed["more"], false);
    let listed = |arguments: &[&str]| String::from_utf8(list(arguments).stdout).unwrap();
    assert!(listed(&["--key", "acme", "--limit", "2"]).ends_with("and more after the first 2: `--limit` shows more\n"));
    assert!(listed(&["--key", "acme", "--limit", "2", "--json"]).contains("\"more\": true"));
    assert!(!listed(&["--key", "acme", "--limit", "3"]).contains("more"));
    assert_eq!(list(&["--key", "acme", "--state", "dead"]).status.code(), Some(2), "an ignored option is refused");

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = axum::Router::new().fallback_service(service(db.pool.clone(), Store::default(), Options::default()).unwrap());
    let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let get = async |path: &str| {
        let (status, body) = crate::health::get_as(address, path, "localhost").await.unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        body
    };
    let api: Value = serde_json::from_str(&get("/api/v1/keys?queue=default&key=acme").await).unwrap();
    assert_eq!((api["jobs"].as_array().unwrap().len(), &api["more"]), (3, &Value::Bool(false)));
    let page = get("/jobs?q=key:acme").await;
    assert!(page.contains(&behind[1].to_string()) && !page.contains(&elsewhere.to_string()) && page.contains("key:acme"), "{page}");
    assert!(get("/jobs?q=key:acme+queue:mail").await.contains(&elsewhere.to_string()));
    assert!(get("/jobs?q=key:acme+state:dead").await.contains("can only be combined with a queue"));
    assert!(!page.contains("aria-label=\"States\"") && !page.contains("and more"), "no state is to be chosen: {page}");
    assert!(get("/jobs").await.contains("aria-label=\"States\""));
    for _ in 0..200 {
        keyed("acme", "default", Act::Ok("z".into())).await;
    }
    let api: Value = serde_json::from_str(&get("/api/v1/keys?queue=default&key=acme").await).unwrap();
    assert_eq!((api["jobs"].as_array().unwrap().len(), &api["more"]), (200, &Value::Bool(true)));
    assert!(get("/jobs?q=key:acme").await.contains("and more after these 200"));
    task.abort();
    db.finish().await;
}
