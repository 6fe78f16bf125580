//! Tests the contents of the dashboard pages, and their cost in statements and bytes.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use axum::Router;
use queue_core::{
    Job as _, JobState, Store,
    operate::Scope,
    options::Limit,
    stores::{Member, Roster},
};
use queue_worker::dashboard::{Options, service, service_over};
use serde_json::json;
use sqlx::Executor as _;
use tests::{Act, Do, TestDb};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::{Served, client::Client, enqueue, some_jobs};

/// Collects the database driver's log of this thread, to count the executed statements.
#[derive(Clone, Default)]
pub(super) struct Statements(Arc<Mutex<String>>);

impl Write for Statements {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Statements {
    /// Collects the log of this thread until the guard is dropped.
    pub(super) fn collect(&self) -> DefaultGuard {
        let writer = self.clone();
        let filter = tracing_subscriber::EnvFilter::new("sqlx::query=debug");
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || writer.clone()).set_default()
    }

    /// Returns the number of statements since the last call. Includes one for `BEGIN`, which the driver does not log.
    pub(super) fn count(&self) -> usize {
        std::mem::take(&mut *self.0.lock().unwrap()).matches("sqlx::query").count() + 1
    }
}

/// Returns the paths of all pages of a store, including the pages of `jobs`.
fn addresses(jobs: &[queue_core::JobId]) -> Vec<String> {
    let own = jobs.iter().map(|job| format!("/jobs/{job}"));
    let pages = ["/dead", "/history", "/history?last=30d&type=do", "/queues", "/workers", "/schedules", "/limits", "/audit"];
    ["/", "/jobs", "/jobs?state=dead", "/jobs?q=queue:default%20way"].into_iter().chain(pages).map(str::to_owned).chain(own).collect()
}

#[tokio::test]
async fn the_page_of_a_missing_or_hidden_job_names_the_reason() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Ok("x".into())).await;
    let served = Served::new(&db).await;
    let absent = served.client.get("/jobs/7").await;
    assert!(absent.status == 404 && absent.text().contains("id=\"why\""), "{}", absent.text());
    let mut holder = db.pool.begin().await.unwrap();
    sqlx::query("lock table queue.job in access exclusive mode").execute(&mut *holder).await.unwrap();
    let locked = served.client.get(&format!("/jobs/{job}")).await;
    assert!(locked.status == 503 && locked.text().contains("pg_terminate_backend"), "{}", locked.text());
    holder.rollback().await.unwrap();
    assert_eq!(served.client.get(&format!("/jobs/{job}")).await.status, 200);
    for (null, status) in
        [("/history?queue=a%00b", 400), ("/history?type=%00", 400), ("/jobs?q=queue:a%00b", 200), ("/jobs?q=error:%00", 200)]
    {
        assert_eq!(served.client.get(null).await.status, status, "{null}");
    }
    db.finish().await;
}

#[tokio::test]
async fn every_page_takes_few_statements_and_few_bytes() {
    let db = TestDb::new().await;
    let jobs = some_jobs(&db).await;
    Do::enqueue_all((0..500).map(|_| Do { act: Act::Ok("x".into()) }), &db.pool).await.unwrap();
    for limit in ["type:do", "queue:mail", "a", "b", "c", "d", "e", "f", "g", "h"] {
        let of_keys = queue_core::options::Limit::new().concurrency(3).keyed();
        queue_core::Queue::new(&db.pool).set_limit(limit, of_keys, None).await.unwrap();
    }
    cost_little(&db, &addresses(&jobs)).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn the_first_page_of_ten_thousand_queues_takes_as_few() {
    let db = TestDb::new().await;
    let many = "select count(queue.enqueue_with('do', '{\"act\": {\"Ok\": \"\"}}', jsonb_build_object('queue', 'of-tenant-' || n))), \
                count(queue.pause('of-tenant-' || n)) filter (where n % 100 = 0) from generate_series(1, 10000) n";
    db.count(many).await;
    let pages = ["/", "/jobs", "/dead", "/history", "/workers", "/schedules", "/limits", "/audit"];
    cost_little(&db, &pages.map(str::to_owned)).await;
    db.finish().await;
}

/// Checks that each page takes at most fifteen statements and, with all assets, less than 60 kB.
async fn cost_little(db: &TestDb, pages: &[String]) {
    let served = Served::new(db).await;
    let statements = Statements::default();
    let _guard = statements.collect();
    let mut assets = 0;
    for asset in ["style.css", "dashboard.js", "htmx.js", "icon.svg"] {
        let answer = served.client.ask("GET", &format!("/assets/{asset}"), &[("Accept-Encoding", "br, gzip")], "").await;
        assert_eq!(answer.status, 200, "{asset}");
        let again = served.client.ask("GET", &format!("/assets/{asset}"), &[("If-None-Match", answer.header("etag").unwrap())], "").await;
        assert_eq!((again.status, again.body.len()), (304, 0));
        assets += answer.bytes;
    }
    statements.count();
    for path in pages {
        let answer = served.client.get(path).await;
        let taken = statements.count();
        println!("{path}: {} bytes, with assets {} bytes, {taken} statements", answer.bytes, answer.bytes + assets);
        assert_eq!(answer.status, 200, "{path}");
        assert!((2..=15).contains(&taken), "{path}: {taken} statements");
        assert!(answer.bytes + assets < 60_000, "{path}: {} bytes", answer.bytes + assets);
    }
}

#[tokio::test]
async fn assets_are_the_same_compressed_or_not() {
    let db = TestDb::new().await;
    let served = Served::new(&db).await;
    let plain = served.client.get("/assets/htmx.js").await;
    let packed = served.client.ask("GET", "/assets/htmx.js", &[("Accept-Encoding", "gzip")], "").await;
    assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), (None, Some("gzip")));
    let file = std::env::temp_dir().join(format!("queue-asset-{}.gz", std::process::id()));
    std::fs::write(&file, &packed.body).unwrap();
    let unpacked = std::process::Command::new("gzip").args(["-dc"]).arg(&file).output().unwrap().stdout;
    std::fs::remove_file(file).unwrap();
    assert!(unpacked == plain.body && packed.body.len() * 2 < plain.body.len());
    db.finish().await;
}

#[tokio::test]
async fn jobs_are_found_by_the_typed_text() {
    let db = TestDb::new().await;
    let [done, dead, waiting] = some_jobs(&db).await;
    let tagged = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).meta("tenant", "acme").queue("mail").await.unwrap().id();
    let served = Served::new(&db).await;
    let found = async |query: &str| {
        let page = served.client.get(&format!("/jobs?{query}")).await;
        [done, dead, waiting, tagged].map(|job| page.text().contains(&format!("/jobs/{job}\"")))
    };
    assert_eq!(found("").await, [true; 4]);
    assert_eq!(found("state=dead").await, [false, true, false, false]);
    assert_eq!(found("q=no+way").await, [false, true, false, false]);
    assert_eq!(found("q=tenant%3Dacme").await, [false, false, false, true]);
    assert_eq!(found("q=queue:mail").await, [false, false, false, true]);
    assert_eq!(found("q=type:do&state=ready").await, [false, false, true, true]);
    assert_eq!(found("q=older:1h").await, [false; 4]);
    assert_eq!(found("q=type:other").await, [false; 4]);
    let by_id = served.client.get(&format!("/jobs?q={dead}")).await;
    assert_eq!((by_id.status, by_id.header("location").unwrap()), (303, format!("/jobs/{dead}").as_str()));
    let wrong = served.client.get("/jobs?q=since:yesterday").await;
    assert!(wrong.status == 200 && wrong.text().contains("a duration must have the form"), "{}", wrong.text());
    db.finish().await;
}

#[tokio::test]
async fn a_list_continues_after_its_last_page() {
    let db = TestDb::new().await;
    Do::enqueue_all((0..120).map(|_| Do { act: Act::Ok("x".into()) }), &db.pool).await.unwrap();
    let served = Served::new(&db).await;
    let (mut path, mut met) = ("/jobs?q=type:do".to_owned(), std::collections::BTreeSet::new());
    for _ in 0..4 {
        let page = served.client.get(&path).await;
        met.extend(page.text().split("/jobs/").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()));
        let Some(next) = page.text().split("rel=\"next\" href=\"").nth(1) else { break };
        path = next.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&");
    }
    assert_eq!(met.len(), 120);
    db.finish().await;
}

#[tokio::test]
async fn operations_on_a_job_succeed_or_name_the_reason() {
    let db = TestDb::new().await;
    let [done, dead, waiting] = some_jobs(&db).await;
    let served = Served::new(&db).await;
    let act = async |job: queue_core::JobId, body: serde_json::Value| {
        let answer = served.client.post(&format!("/api/v1/jobs/{job}/act"), &body).await;
        (answer.status, answer.json())
    };
    let (status, reply) = act(dead, json!({ "act": "requeue" })).await;
    assert_eq!((status, reply["acted"].as_str(), db.state(dead).await), (200, Some("done"), Some(JobState::Ready)), "{reply}");
    assert_eq!(act(waiting, json!({ "act": "snooze", "seconds": 3600 })).await.0, 200);
    assert_eq!(db.state(waiting).await, Some(JobState::Scheduled));
    assert_eq!(act(waiting, json!({ "act": "run_now" })).await.0, 200);
    assert_eq!(act(waiting, json!({ "act": "priority", "priority": 7 })).await.0, 200);
    assert_eq!(act(waiting, json!({ "act": "reschedule", "at": "2100-01-01T00:00:00Z" })).await.0, 200);
    assert_eq!(act(waiting, json!({ "act": "cancel" })).await.0, 200);
    assert_eq!(db.state(waiting).await, Some(JobState::Cancelled));
    let (status, reply) = act(done, json!({ "act": "cancel" })).await;
    assert!(status == 409 && reply["error"].as_str().unwrap().contains("completed"), "{reply}");
    for body in [
        json!({ "act": "snooze", "seconds": -1 }),
        json!({ "act": "explode" }),
        json!({}),
        json!([]),
        json!({ "act": "priority", "priority": 40000 }),
    ] {
        assert_eq!(act(done, body.clone()).await.0, 400, "{body}");
    }
    assert_eq!(act(queue_core::JobId(5), json!({ "act": "cancel" })).await.0, 404);
    db.finish().await;
}

#[tokio::test]
async fn a_job_shows_why_it_waits() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Ok("x".into())).await;
    let served = Served::new(&db).await;
    let page = served.client.get(&format!("/jobs/{job}")).await;
    assert!(page.text().contains("no worker is alive"), "{}", page.text());
    let scope = queue_core::operate::Scope::queue("default");
    queue_core::Queue::new(&db.pool).pause_with_reason(&scope, Some("the move")).await.unwrap();
    let page = served.client.get(&format!("/jobs/{job}")).await;
    assert!(page.text().contains("the move"), "{}", page.text());
    assert_eq!(served.client.get("/jobs/7").await.status, 404);
    db.finish().await;
}

#[tokio::test]
async fn the_past_is_drawn_and_counted() {
    let db = TestDb::new().await;
    let served = Served::new(&db).await;
    let page = served.client.get("/history").await;
    assert!(page.text().contains("No attempt ended"), "{}", page.text());
    some_jobs(&db).await;
    for (path, rows) in
        [("/history", 2), ("/history?last=7d&type=do", 2), ("/history?last=1e9d&queue=default", 2), ("/history?type=none", 0)]
    {
        let page = served.client.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text());
        let text = page.text();
        assert_eq!(text.matches("<th scope=\"row\">").count(), rows, "{path}: {text}");
        assert_eq!(text.contains("aria-label=\"Attempts: 1 completed, 1 failed\""), rows > 0, "{path}: {text}");
    }
    let hostile = served.client.get("/history?queue=%3Cscript%3E%1b[2J").await;
    assert!(hostile.status == 200 && !hostile.text().contains("<script>") && !hostile.text().contains('\u{1b}'), "{}", hostile.text());
    db.finish().await;
}

#[tokio::test]
async fn the_overview_shows_what_needs_attention() {
    let db = TestDb::new().await;
    let queue = db.queue();
    some_jobs(&db).await;
    let served = Served::new(&db).await;
    let quiet = served.client.get("/").await;
    let quiet = quiet.text();
    assert!(quiet.contains("aria-label=\"Attempts: 1 completed, 1 failed\"") && !quiet.contains("Needs attention"), "{quiet}");
    assert!(quiet.contains("<td class=\"n bad\">1</td><td class=\"n\">50.0 %</td><td class=\"n\">1</td>"), "{quiet}");
    drop(served);

    Do { act: Act::Panic }.enqueue(&db.pool).queue("late").await.unwrap();
    queue.pause_with_reason(&Scope::queue("mail"), Some("the <move>")).await.unwrap();
    queue.set_limit("type:do", Limit::new().concurrency(0), None).await.unwrap();
    db.pool
        .execute(
            "update queue.ready r set seq = ((r.seq >> 20) - 180000) << 20 | (r.seq & 1048575) from queue.lane l where l.lane = r.lane and l.queue = 'late';
             insert into queue.worker (id, name, host, pid, version, queues, ttl, expires_at, busy, slots)
               values (gen_random_uuid(), 'one', '', 1, '', '{}', '1 hour', now() + interval '1 hour', 3, 8)",
        )
        .await
        .unwrap();
    let served = Served::new(&db).await;
    let page = served.client.get("/").await;
    let page = page.text();
    for shown in [
        "paused</span> <a href=\"/queues\"><bdi>queue mail, for ",
        "0 ready: the &#60;move&#62;",
        "limited</span> <a href=\"/limits\"><bdi>type:do, 0 of 0 running, 2 waiting",
        "late</span> <a href=\"/jobs?q=queue:late&#38;state=ready\"><bdi>queue late, the oldest ready job has waited 3 min",
        "<span class=\"n\">3 of 8 slots</span>",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    drop(served);

    db.pool.execute("alter table queue.limiter rename to unreadable").await.unwrap();
    let served = Served::new(&db).await;
    let page = served.client.get("/").await;
    let (status, page) = (page.status, page.text());
    assert!(status == 200 && page.contains("limits could not be loaded") && page.contains("3 of 8 slots"), "{page}");
    db.pool.execute("alter table queue.unreadable rename to limiter").await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn nested_in_an_application_every_link_leads_into_the_nest() {
    let db = TestDb::new().await;
    let jobs = some_jobs(&db).await;
    let app: Router = Router::new()
        .nest_service("/admin/queue", service(db.pool.clone(), Store::default(), Options::default().token("0123456789abcdef")).unwrap());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(listener.local_addr().unwrap());
    let task = tokio::spawn(async move { axum::serve(listener, app).await });
    assert_eq!(client.get("/admin/queue/jobs").await.header("location"), Some("/admin/queue/login"));
    for front in ["/admin/queue", "/admin/queue/"] {
        assert_eq!(client.get(front).await.header("location"), Some("/admin/queue/login"), "{front}");
    }
    let own = format!("http://{}", client.address);
    let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", own.as_str())];
    let login = client.ask("POST", "/admin/queue/login", &form, "token=0123456789abcdef").await;
    assert!(login.header("set-cookie").unwrap().contains("; Path=/admin/queue;"), "{login:?}");
    assert_eq!(login.header("location"), Some("/admin/queue"));
    let bearer = [("Authorization", "Bearer 0123456789abcdef")];
    for path in addresses(&jobs) {
        let path = format!("/admin/queue{path}");
        let page = client.ask("GET", &path, &bearer, "").await;
        assert_eq!(page.status, 200, "{path}");
        for link in ["href=\"", "src=\"", "action=\"", "data-act=\""].into_iter().flat_map(|name| page.text().split(name).skip(1)) {
            let link = link.split('"').next().unwrap();
            assert!(link.starts_with("/admin/queue") || link.starts_with('#'), "{path}: {link}");
        }
    }
    task.abort();
    db.finish().await;
}

#[tokio::test]
async fn the_first_page_is_at_its_place_with_and_without_a_slash_at_the_end() {
    let db = TestDb::new().await;
    let roster = Roster::default();
    roster.put(Member::new("acme", &db.pool, Store::default()).unwrap());
    let of_one = service(db.pool.clone(), Store::default(), Options::default()).unwrap();
    let of_all = service_over(&roster, Options::default()).unwrap();
    for of in [of_one, of_all] {
        let app: Router = Router::new().nest_service("/admin/queue", of.clone()).fallback_service(of);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, app).await });
        for place in ["/", "/admin/queue", "/admin/queue/"] {
            let page = client.get(place).await;
            assert!(page.status == 200 && page.text().contains("</html>"), "{place}: {} {}", page.status, page.text());
            let own = if place == "/" { "href=\"/assets/" } else { "href=\"/admin/queue/assets/" };
            assert!(page.text().contains(own), "{place}: {}", page.text());
            let head = client.ask("HEAD", place, &[], "").await;
            assert_eq!((head.status, head.body.len(), head.header("content-type")), (200, 0, page.header("content-type")), "{place}");
        }
        task.abort();
    }
    db.finish().await;
}
