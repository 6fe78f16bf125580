//! Tests many stores behind one login, with an overview of all stores. Each store has its dashboard under a path with the store's name.

mod logins;

use std::time::{Duration, Instant};

use queue_core::{
    Job as _, JobId, Store,
    stores::{Member, Roster},
};
use queue_worker::dashboard::{Options, listen, service_over};
use serde_json::{Value, json};
use sqlx::{
    AssertSqlSafe, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tests::{Act, Do, TestDb, eventually};
use tokio::net::TcpListener;

use super::{Served, api::ApiDocument, client::Client, live::Viewer};
use crate::stores::make;

/// Serves the stores of a roster until the end of the test.
async fn serve_stores(roster: &Roster, options: Options) -> Served {
    let listening = listen("127.0.0.1:0".parse().unwrap(), options).await.unwrap();
    let client = Client::new(listening.address());
    let roster = roster.clone();
    let task = tokio::spawn(async move { listening.serve_over(&roster, std::future::pending()).await });
    Served { client, task }
}

async fn store(db: &TestDb, name: &str, schema: &str) -> Member {
    make(&db.pool, schema).await;
    Member::new(name, &db.pool, Store::new(schema).unwrap()).unwrap()
}

fn roster_of(members: &[&Member]) -> Roster {
    let roster = Roster::default();
    for member in members {
        roster.put((*member).clone());
    }
    roster
}

async fn enqueue(member: &Member) -> JobId {
    Do { act: Act::Ok("x".into()) }.enqueue(member.pool()).store(member.store()).await.unwrap().id()
}

async fn waits(member: &Member, job: JobId) -> bool {
    let query = member.store().sql("select exists (select from queue.ready where id = $1)");
    sqlx::query_scalar(query).bind(job).fetch_one(member.pool()).await.unwrap()
}

async fn drop_schema(member: &Member) {
    sqlx::query(AssertSqlSafe(format!("drop schema \"{}\" cascade", member.store().schema()))).execute(member.pool()).await.unwrap();
}

fn jobs_of(overview: &Value, store: &str, state: &str) -> i64 {
    let stores = overview["stores"].as_array().unwrap();
    let of = stores.iter().find(|known| known["name"] == store).unwrap_or_else(|| panic!("no {store}: {overview}"));
    let count = of["totals"].as_array().unwrap().iter().find(|count| count["state"] == state);
    count.map_or(0, |count| count["jobs"].as_i64().unwrap())
}

#[tokio::test]
#[ignore = "deep"]
async fn the_first_page_has_the_statistics_of_all_stores_and_the_error_of_a_missing_one() {
    let db = TestDb::new().await;
    let (acme, globex, gone) = (store(&db, "acme", "s_a").await, store(&db, "globex", "s_g").await, store(&db, "gone", "s_x").await);
    for member in [&acme, &acme, &globex] {
        enqueue(member).await;
    }
    drop_schema(&gone).await;
    let nowhere = PgPool::connect_lazy("postgres://nobody@127.0.0.1:1/nothing").unwrap();
    let roster = roster_of(&[&acme, &globex, &gone, &Member::new("nowhere", &nowhere, Store::default()).unwrap()]);
    let served = serve_stores(&roster, Options::default()).await;

    let described = ApiDocument::fetch(&served.client).await;
    assert_eq!(described.operations.len(), 1);
    let answer = served.client.get("/api/v1/stores").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let overview = answer.json();
    assert_eq!(described.fault(&described.operations[0].answer, &overview, "/api/v1/stores"), None, "{overview}");
    let named: Vec<&Value> = overview["stores"].as_array().unwrap().iter().map(|store| &store["name"]).collect();
    assert_eq!(named, ["acme", "globex", "gone", "nowhere"]);
    assert_eq!((jobs_of(&overview, "acme", "ready"), jobs_of(&overview, "globex", "ready")), (2, 1));
    let ready = overview["totals"].as_array().unwrap().iter().find(|count| count["state"] == "ready").unwrap();
    assert!(ready["jobs"] == 3 && ready["partial"] == true && overview["silent"] == 2, "{overview}");
    assert!(overview["stores"][0]["error"].is_null() && overview["stores"][0]["schema"] == "s_a", "{overview}");
    for silent in [2, 3] {
        assert!(overview["stores"][silent]["error"].is_string() && overview["stores"][silent]["totals"] == json!([]), "{overview}");
    }

    let page = served.client.get("/").await;
    let text = page.text();
    assert_eq!(page.status, 200);
    for part in ["href=\"/stores/acme\"", "href=\"/stores/globex/jobs?state=ready\"", "<td>s_a</td>", "2 not responding", ">3+<"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.matches("class=\"error\"").count() == 2 && !text.contains("id=\"find\"") && !text.contains("href=\"/jobs\""), "{text}");

    // Unknown pages return 404. The page of a store whose schema was dropped returns 503.
    for path in ["/jobs", "/live", "/api/v1/overview", "/api/v1/jobs", "/stores", "/stores/"] {
        assert_eq!(served.client.get(path).await.status, 404, "{path}");
    }
    assert_eq!(served.client.get("/stores/gone").await.status, 503);
    assert_eq!(served.client.get("/stores/acme").await.status, 200);
    nowhere.close().await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_silent_database_takes_no_more_than_its_timeout_and_delays_no_other() {
    let db = TestDb::new().await;
    let acme = store(&db, "acme", "s_a").await;
    enqueue(&acme).await;
    // This listener accepts connections and never answers.
    let deaf = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = deaf.local_addr().unwrap().port();
    let listening = tokio::spawn(async move {
        let mut taken = Vec::new();
        while let Ok((stream, _)) = deaf.accept().await {
            taken.push(stream);
        }
    });
    let options = PgConnectOptions::new().host("127.0.0.1").port(port).username("nobody").database("nothing");
    let pool = PgPoolOptions::new().max_connections(50).acquire_timeout(Duration::from_hours(1)).connect_lazy_with(options);
    let roster = roster_of(&[&acme]);
    for number in 0..60 {
        roster.put(Member::new(&format!("deaf{number}"), &pool, Store::default()).unwrap());
    }
    let served = serve_stores(&roster, Options::default()).await;
    let client = served.client.clone();
    let first = tokio::spawn(async move { client.get("/").await.text().to_owned() });
    let client = served.client.clone();
    let second = tokio::spawn(async move { client.get("/api/v1/stores").await.json() });
    for path in ["/stores/acme", "/stores/acme/jobs"] {
        assert_eq!(served.client.get(path).await.status, 200);
    }
    let (page, overview) = (first.await.unwrap(), second.await.unwrap());
    assert!(page.contains("60 not responding") && page.contains("href=\"/stores/acme/jobs?state=ready\""), "{page}");
    assert_eq!((jobs_of(&overview, "acme", "ready"), overview["silent"].as_i64()), (1, Some(60)));
    listening.abort();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn stores_whose_tables_are_locked_delay_the_others_only_once() {
    let db = TestDb::new().await;
    let (locked, well) = (store(&db, "a_locked_0", "s_l").await, store(&db, "well", "s_w").await);
    enqueue(&well).await;
    let roster = roster_of(&[&locked, &well]);
    for number in 1..14 {
        roster.put(Member::new(&format!("a_locked_{number}"), &db.pool, locked.store()).unwrap());
    }
    let mut held = db.pool.begin().await.unwrap();
    sqlx::query("lock table s_l.ready, s_l.lease, s_l.scheduled in access exclusive mode").execute(&mut *held).await.unwrap();
    let served = serve_stores(&roster, Options::default()).await;
    let first = served.client.get("/api/v1/stores").await.json();
    assert_eq!(first["silent"], 15, "the silent one is not known yet: {first}");
    eventually("it is queried before those that were silent", async || {
        let overview = served.client.get("/api/v1/stores").await.json();
        jobs_of(&overview, "well", "ready") == 1 && overview["silent"] == 14
    })
    .await;
    held.rollback().await.unwrap();
    eventually("all answer again", async || served.client.get("/api/v1/stores").await.json()["silent"] == 0).await;
    db.finish().await;
}

#[tokio::test]
async fn stores_are_added_and_removed_while_the_dashboard_runs() {
    let db = TestDb::new().await;
    let (acme, other) = (store(&db, "acme", "s_a").await, store(&db, "other", "s_o").await);
    let job = enqueue(&acme).await;
    let roster = roster_of(&[&acme]);
    let served = serve_stores(&roster, Options::default()).await;
    let client = &served.client;
    assert_eq!(client.get("/stores/other").await.status, 404);
    roster.put(other.clone());
    assert_eq!(client.get("/stores/other").await.status, 200);
    assert!(client.get("/").await.text().contains("/stores/other"), "immediately");

    let mut watching = Viewer::new(&served, &format!("/stores/acme/live?job={job}")).await;
    watching.until("event: part").await;
    assert!(watching.received.contains("text/event-stream"));
    assert!(roster.remove("acme"));
    watching.until_end().await;
    assert!(!client.get("/").await.text().contains("/stores/acme"));
    for path in ["/stores/acme", "/stores/acme/live", &format!("/stores/acme/jobs/{job}")] {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
    assert_eq!(client.post("/stores/acme/api/v1/pause", &json!({ "everything": true })).await.status, 404);

    // Replace the store with another store of the same name. Later, put the first store back with another pool.
    roster.put(Member::new("acme", &db.pool, other.store()).unwrap());
    assert_eq!(client.get(&format!("/stores/acme/jobs/{job}")).await.status, 404, "it is another store");
    let mut watching = Viewer::new(&served, "/stores/acme/live").await;
    watching.until("event: part").await;
    let old = PgPool::connect(&db.url).await.unwrap();
    roster.put(Member::new("acme", &old, acme.store()).unwrap());
    watching.until_end().await;
    assert_eq!(client.get(&format!("/stores/acme/jobs/{job}")).await.status, 200);
    assert!(roster.remove("acme"));
    roster.put(acme.clone());
    old.close().await;
    assert_eq!(client.get(&format!("/stores/acme/jobs/{job}")).await.status, 200, "nothing hangs on a pool that was closed");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn the_stream_of_a_store_shows_what_its_workers_do() {
    let db = TestDb::new().await;
    let acme = Member::new("acme", &db.pool, Store::default()).unwrap();
    let other = store(&db, "other", "s_o").await;
    let job = enqueue(&acme).await;
    let served = serve_stores(&roster_of(&[&acme, &other]), Options::default()).await;
    let page = served.client.get(&format!("/stores/acme/jobs/{job}")).await;
    assert!(page.text().contains(&format!("data-live=\"?job={job}\"")) && page.text().contains("data-base=\"/stores/acme\""));
    let mut watching = Viewer::new(&served, &format!("/stores/acme/live?job={job}")).await;
    let mut figures = Viewer::new(&served, "/stores/other/live").await;
    figures.until("/stores/other/jobs?state=ready").await;
    watching.until("no worker is alive").await;
    db.run_until_idle(db.worker()).await;
    watching.until("completed").await;
    assert!(!figures.received.contains("\"/jobs"), "{}", figures.received);
    // The limit on stream clients applies to all stores together.
    let mut others = Vec::new();
    for number in 0..30 {
        others.push(Viewer::new(&served, if number % 2 == 0 { "/stores/acme/live" } else { "/stores/other/live" }).await);
    }
    for viewer in &mut others {
        viewer.until("event: part").await;
    }
    assert_eq!(served.client.get("/stores/other/live").await.status, 503);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn any_number_of_viewed_stores_share_three_connections_per_database() {
    let db = TestDb::new().await;
    let options = db.pool.connect_options().as_ref().clone().application_name("looked-at");
    let pool = PgPoolOptions::new().max_connections(40).connect_with(options.clone()).await.unwrap();
    // Two pools of the same database share that database's limit of three connections.
    let another = PgPoolOptions::new().max_connections(40).connect_with(options).await.unwrap();
    let roster = Roster::default();
    for number in 0..8 {
        let name = format!("s_{number}");
        make(&db.pool, &name).await;
        roster.put(Member::new(&name, if number % 2 == 0 { &pool } else { &another }, Store::new(&name).unwrap()).unwrap());
    }
    let served = serve_stores(&roster, Options::default()).await;
    // The table locks block every query, so that the number of concurrent queries reaches its maximum.
    let mut holder = db.pool.begin().await.unwrap();
    for number in 0..8 {
        let lock = format!("lock table s_{number}.job, s_{number}.ready, s_{number}.lane in access exclusive mode");
        sqlx::query(AssertSqlSafe(lock)).execute(&mut *holder).await.unwrap();
    }
    let mut asking = Vec::new();
    for number in 0..40 {
        let client = served.client.clone();
        let path = if number % 5 == 0 { "/".to_owned() } else { format!("/stores/s_{}{}", number % 8, ["", "/jobs"][number % 2]) };
        asking.push(tokio::spawn(async move { client.get(&path).await.status }));
    }
    let busy = "select count(*) from pg_stat_activity where application_name = 'looked-at' and wait_event_type = 'Lock'";
    let (mut most, began) = (0, Instant::now());
    while began.elapsed() < Duration::from_secs(3) {
        most = most.max(db.count(busy).await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(most, 3);
    holder.rollback().await.unwrap();
    for answer in asking {
        assert!([200, 503].contains(&answer.await.unwrap()));
    }
    assert_eq!(served.client.get("/stores/s_7").await.status, 200);
    eventually("no client watches anything", async || db.count(busy).await == 0).await;
    pool.close().await;
    another.close().await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn bulk_operations_are_shown_and_stopped_in_their_own_store_and_counted_for_all() {
    let db = TestDb::new().await;
    let (acme, other) = (store(&db, "acme", "s_a").await, store(&db, "other", "s_o").await);
    for member in [&acme, &other] {
        Do::enqueue_all((0..50).map(|_| Do { act: Act::Ok("x".into()) }), member.pool()).store(member.store()).await.unwrap();
    }
    let served = serve_stores(&roster_of(&[&acme, &other]), Options::default()).await;
    let client = &served.client;
    let slowly = json!({ "act": "cancel", "filter": {}, "at_most": 50, "rate": 1.0 });
    let begin = async |store: &str| client.post(&format!("/stores/{store}/api/v1/jobs/act"), &slowly).await;
    for store in ["acme", "acme", "acme", "other"] {
        let answer = begin(store).await;
        assert!(answer.status == 200 && answer.json()["goes_on"] == true, "{}", answer.text());
    }
    assert_eq!((begin("acme").await.status, begin("other").await.status), (503, 503), "four are on their way");
    let numbers = async |store: &str| -> Vec<u64> {
        let list = client.get(&format!("/stores/{store}/api/v1/acts")).await.json();
        list.as_array().unwrap().iter().map(|act| act["number"].as_u64().unwrap()).collect()
    };
    assert_eq!((numbers("acme").await, numbers("other").await), (vec![1, 2, 3], vec![4]));
    let stop = async |store: &str, number: u64| {
        client.post(&format!("/stores/{store}/api/v1/acts/stop"), &json!({ "number": number })).await.status
    };
    assert_eq!((stop("other", 1).await, stop("acme", 4).await), (404, 404));
    for number in 1..=3 {
        assert_eq!(stop("acme", number).await, 200);
    }
    assert_eq!(stop("other", 4).await, 200);
    eventually("all have ended", async || numbers("acme").await.is_empty() && numbers("other").await.is_empty()).await;
    db.finish().await;
}

#[tokio::test]
async fn a_roster_without_stores_has_a_page_and_a_guessable_token_is_refused() {
    let roster = Roster::default();
    assert!(service_over(&roster, Options::default().token("short")).is_err());
    let served = serve_stores(&roster, Options::default()).await;
    assert!(served.client.get("/").await.text().contains("There are no stores yet."));
    assert_eq!(served.client.get("/api/v1/stores").await.json(), json!({ "stores": [], "totals": [], "silent": 0 }));
}
