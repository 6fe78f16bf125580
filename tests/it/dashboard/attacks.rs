//! Tests attacks on the dashboard: requests without the token, for another host or from another site, changes on a read-only dashboard,
//! hidden data in responses and logs, hostile texts, excessive requests, and clients that send nothing.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use queue_core::{Job as _, JobState};
use queue_worker::{
    Error,
    dashboard::{Options, listen},
};
use serde_json::json;
use tests::{Act, Do, TestDb};
use tokio::io::AsyncReadExt as _;

use super::{Served, enqueue, some_jobs};

const TOKEN: &str = "correct horse battery staple";

#[tokio::test]
async fn f59_on_a_public_address_nothing_is_served_without_a_token() {
    for address in ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0", "192.0.2.1:7070"] {
        let refused = listen(address.parse().unwrap(), Options::default()).await.unwrap_err();
        assert!(matches!(refused, Error::OpenDashboard { .. }) && refused.to_string().contains("QUEUE_DASHBOARD_TOKEN"), "{refused}");
    }
    let short = listen("0.0.0.0:0".parse().unwrap(), Options::default().token("0123456789abcde")).await.unwrap_err();
    assert!(short.to_string().contains("at least 16 characters") && !short.to_string().contains("0123456789"), "{short}");
    assert!(listen("0.0.0.0:0".parse().unwrap(), Options::default().token(TOKEN)).await.is_ok());
    assert!(listen("127.0.0.1:0".parse().unwrap(), Options::default()).await.is_ok());
    let shown = format!("{:?}", Options::default().token(TOKEN));
    assert!(!shown.contains("horse"), "{shown}");
}

#[tokio::test]
async fn f60_a_request_for_another_host_is_rejected() {
    let db = TestDb::new().await;
    let served = Served::with(&db, Options::default().host("Admin.example.com")).await;
    for host in [
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "admin.example.com.",
        "",
        "localhost@evil",
        "[::2]",
    ] {
        for (method, path) in
            [("GET", "/"), ("GET", "/api/v1/overview"), ("POST", "/api/v1/jobs/1/act"), ("GET", "/assets/style.css"), ("GET", "/login")]
        {
            let answer = served.client.ask(method, path, &[("Host", host)], "").await;
            assert_eq!(answer.status, 421, "{host} {path}");
        }
    }
    for host in ["localhost", "LOCALHOST:7070", "127.0.0.1:1", "[::1]", "[::1]:80", "admin.example.com", "admin.example.com:8443"] {
        assert_eq!(served.client.ask("GET", "/", &[("Host", host)], "").await.status, 200, "{host}");
    }
    let twice = served.client.ask("GET", "/", &[("Host", "localhost"), ("Host", "evil.example")], "").await.status;
    let absolute = served.client.ask("GET", "http://evil.example/", &[("Host", "localhost")], "").await.status;
    assert!(twice >= 400 && absolute == 421, "{twice} {absolute}");
    db.finish().await;
}

#[tokio::test]
async fn f61_requests_from_other_sites_change_nothing() {
    let db = TestDb::new().await;
    let [.., dead, _] = some_jobs(&db).await;
    let served = Served::new(&db).await;
    let (path, body, own) = (format!("/api/v1/jobs/{dead}/act"), r#"{"act":"discard"}"#, format!("http://{}", served.client.address));
    let json = ("Content-Type", "application/json");
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let attacks: Vec<Vec<(&str, &str)>> = vec![
        vec![json, ("Origin", "http://evil.example")],
        vec![json, ("Origin", "null")],
        vec![json, ("Origin", "http://127.0.0.1:1")],
        vec![json, ("Origin", "file://")],
        vec![json, ("Sec-Fetch-Site", "cross-site")],
        vec![json, ("Sec-Fetch-Site", "same-site"), ("Origin", &own)],
        vec![json, ("Sec-Fetch-Site", "none")],
        vec![form, ("Origin", &own)],
        vec![form, ("HX-Request", "true"), ("Origin", &own)],
        vec![("Content-Type", "text/plain"), ("Origin", &own)],
        vec![("Content-Type", "text/plain;application/json"), ("Origin", &own)],
        vec![("Content-Type", "multipart/form-data; boundary=x")],
        vec![],
    ];
    for headers in &attacks {
        let answer = served.client.ask("POST", &path, headers, body).await;
        assert_eq!(answer.status, 403, "{headers:?}: {}", answer.text());
    }
    for method in ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        let status = served.client.ask(method, &path, &[json], body).await.status;
        assert!(status >= 400, "{method}: {status}");
    }
    assert_eq!(db.state(dead).await, Some(JobState::Dead), "nothing was done");
    let answer = served.client.ask("POST", &path, &[json, ("Origin", &own), ("Sec-Fetch-Site", "same-origin")], body).await;
    assert_eq!((answer.status, db.state(dead).await), (200, None), "its own page may");
    db.finish().await;
}

#[tokio::test]
async fn no_request_is_served_without_the_token_or_its_cookie() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Ok("x".into())).await;
    let served = Served::with(&db, Options::default().token(TOKEN)).await;
    let client = &served.client;
    let inside = [format!("/api/v1/jobs/{job}"), "/api/v1/openapi.json".into(), "/api/v1/overview".into(), "/api/nothing".into()];
    for path in &inside {
        assert_eq!(client.get(path).await.status, 401, "{path}");
        assert_eq!(client.ask("GET", path, &[("Authorization", "Bearer correct horse battery stapl")], "").await.status, 401);
        assert_eq!(client.get(&format!("{path}?token={}", TOKEN.replace(' ', "%20"))).await.status, 401, "a token is never in an address");
    }
    assert_eq!(client.post(&format!("/api/v1/jobs/{job}/act"), &json!({ "act": "cancel" })).await.status, 401);
    for path in ["/", "/jobs", "/nothing"] {
        let answer = client.get(path).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/login")), "{path}");
    }
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(client.ask("GET", "/api/v1/overview", &[("Authorization", &bearer)], "").await.status, 200);

    let own = format!("http://{}", client.address);
    let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", own.as_str())];
    let entered = |token: &str| format!("token={}", token.replace(' ', "+"));
    let wrong = client.ask("POST", "/login", &form, &entered("wrong")).await;
    assert!(wrong.status == 401 && wrong.header("set-cookie").is_none() && wrong.text().contains("Wrong token"));
    let foreign = [form[0], ("Origin", "http://evil.example")];
    assert_eq!(client.ask("POST", "/login", &foreign, &entered(TOKEN)).await.status, 403);
    assert_eq!(client.ask("POST", "/login", &form[..1], &entered(TOKEN)).await.status, 403, "a form has its origin");
    let right = client.ask("POST", "/login", &form, &entered(TOKEN)).await;
    let cookie = right.header("set-cookie").unwrap().to_owned();
    assert_eq!((right.status, right.header("location")), (303, Some("/")));
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict") && !cookie.contains("horse"), "{cookie}");
    let tls = [form[0], ("Origin", "https://localhost"), ("Host", "localhost")];
    assert!(client.ask("POST", "/login", &tls, &entered(TOKEN)).await.header("set-cookie").unwrap().ends_with("; Secure"));
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(client.ask("GET", "/", &[("Cookie", cookie)], "").await.status, 200);
    assert_eq!(client.ask("GET", "/", &[("Cookie", &cookie[..cookie.len() - 1])], "").await.status, 303);
    // Even with the cookie, a page of another site cannot change anything.
    let forged = [("Cookie", cookie), ("Content-Type", "text/plain"), ("Origin", "http://evil.example")];
    assert_eq!(client.ask("POST", &format!("/api/v1/jobs/{job}/act"), &forged, r#"{"act":"cancel"}"#).await.status, 403);
    assert_eq!(db.state(job).await, Some(JobState::Ready));
    db.finish().await;
}

type Headers<'a> = &'a [(&'a str, &'a str)];

#[tokio::test]
async fn every_answer_forbids_scripts_frames_and_guesses() {
    let db = TestDb::new().await;
    let served = Served::with(&db, Options::default().token(TOKEN)).await;
    let bearer = ("Authorization", "Bearer correct horse battery staple");
    let requests: [(&str, &str, Headers); 8] = [
        ("GET", "/", &[bearer]),
        ("GET", "/", &[]),
        ("GET", "/login", &[]),
        ("GET", "/nothing", &[bearer]),
        ("GET", "/assets/htmx.js", &[]),
        ("GET", "/api/v1/overview", &[bearer]),
        ("GET", "/", &[("Host", "evil.example")]),
        ("DELETE", "/jobs", &[bearer]),
    ];
    for (method, path, headers) in requests {
        let answer = served.client.ask(method, path, headers, "").await;
        let policy = answer.header("content-security-policy").unwrap_or_default();
        let expected = [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'self'",
        ];
        assert!(expected.iter().all(|expected| policy.contains(expected)) && !policy.contains("unsafe"), "{path}: {policy}");
        let values = ["x-content-type-options", "x-frame-options", "referrer-policy"].map(|name| answer.header(name));
        assert_eq!(values, [Some("nosniff"), Some("DENY"), Some("same-origin")], "{path}");
        assert!(path.starts_with("/assets/") || answer.header("cache-control") == Some("no-store"), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    db.finish().await;
}

const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>=cmd|'/c calc'!A1\u{1b}[31m\u{202e}{{7*7}}";

#[tokio::test]
async fn f62_hostile_texts_are_shown_as_text() {
    let db = TestDb::new().await;
    let enqueued = Do { act: Act::Terminal(HOSTILE.into()) }.enqueue(&db.pool).meta("note", HOSTILE).await.unwrap().id();
    let done = Do { act: Act::Ok(HOSTILE.into()) }.enqueue(&db.pool).await.unwrap().id();
    db.run_until_idle(db.worker()).await;
    let served = Served::new(&db).await;
    let paths = [
        "/".to_owned(),
        "/jobs".into(),
        format!("/jobs/{enqueued}"),
        format!("/jobs/{done}"),
        "/jobs?q=%3Cscript%3Ealert(1)%3C/script%3E%22%27".into(),
        "/jobs?state=%3Cscript%3Ealert(1)%3C/script%3E".into(),
        "/jobs?q=since:%3Cscript%3Ealert(1)%3C/script%3E".into(),
        "/jobs/%3Cscript%3Ealert(1)%3C/script%3E".into(),
        "/%3Cscript%3Ealert(1)%3C/script%3E".into(),
    ];
    for path in paths {
        let answer = served.client.get(&path).await;
        let html = answer.text();
        assert!(answer.header("content-type").unwrap().starts_with("text/html"), "{path}");
        assert!(!html.contains("<script>") && !html.contains("<img") && !html.contains("alert(1)</script"), "{path}: {html}");
        assert!(!html.contains('\u{1b}') && !html.contains('\u{202e}'), "{path}");
        assert!(!html.contains(" style=") && !html.contains("<style") && !html.contains(" onclick"), "{path}");
    }
    let shown = served.client.get(&format!("/jobs/{enqueued}")).await;
    assert!(shown.text().contains("&#60;script&#62;") && shown.text().contains("&lt;script&gt;"), "as text: {}", shown.text());
    let json = served.client.get(&format!("/api/v1/jobs/{enqueued}")).await;
    assert_eq!((json.header("content-type"), json.json()["error"].as_str()), (Some("application/json"), Some(HOSTILE)));
    db.finish().await;
}

#[tokio::test]
async fn f63_requests_are_bounded() {
    let db = TestDb::new().await;
    Do::enqueue_all((0..300).map(|_| Do { act: Act::Ok("x".into()) }), &db.pool).await.unwrap();
    let served = Served::new(&db).await;
    let jobs = async |query: &str| {
        let answer = served.client.get(&format!("/api/v1/jobs?{query}")).await;
        (answer.status, answer.json()["jobs"].as_array().map_or(0, Vec::len))
    };
    assert_eq!(jobs("limit=1e9").await, (200, 200));
    assert_eq!(jobs("limit=-1").await, (200, 1));
    assert_eq!(jobs("limit=NaN").await, (200, 50));
    assert_eq!(jobs("since=1e9d&limit=10").await, (200, 10));
    assert_eq!(jobs("older_than=1e300").await, (200, 0));
    assert_eq!(jobs("before=9223372036854775807&limit=3").await, (200, 3));
    assert_eq!(jobs("before=-9223372036854775808").await, (200, 0), "nothing is before the first");
    for query in [
        "before=99999999999999999999",
        "offset=1000000",
        "state=nothing",
        "queue=%27%3B--",
        "since=-1d",
        "meta=x",
        "limit=1&limit=2",
        "error=%00",
    ] {
        assert_eq!(jobs(query).await.0, 400, "{query}");
    }
    let long = "x".repeat(60_000);
    assert!(served.client.get(&format!("/api/v1/jobs?error={long}")).await.status >= 400);
    let huge = json!({ "act": "cancel", "x": "y".repeat(200_000) });
    assert_eq!(served.client.post("/api/v1/jobs/1/act", &huge).await.status, 413);
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    assert_eq!(served.client.ask("POST", "/api/v1/jobs/1/act", &[("Content-Type", "application/json")], &deep).await.status, 400);
    db.finish().await;
}

#[tokio::test]
async fn a_read_only_dashboard_changes_nothing() {
    let db = TestDb::new().await;
    let [.., dead, waiting] = some_jobs(&db).await;
    let served = Served::with(&db, Options::default().read_only(true)).await;
    for (job, act) in [(dead, "requeue"), (dead, "discard"), (waiting, "cancel")] {
        let answer = served.client.post(&format!("/api/v1/jobs/{job}/act"), &json!({ "act": act })).await;
        assert_eq!(answer.status, 403, "{act}");
    }
    assert!(!served.client.get(&format!("/jobs/{dead}")).await.text().contains("data-act"), "no buttons");
    assert_eq!((db.state(dead).await, db.state(waiting).await), (Some(JobState::Dead), Some(JobState::Ready)));
    db.finish().await;
}

#[tokio::test]
async fn hidden_parts_of_a_payload_are_in_no_answer() {
    let db = TestDb::new().await;
    let job = Do { act: Act::Ok("the secret".into()) }.enqueue(&db.pool).await.unwrap().id();
    db.run_until_idle(db.worker()).await;
    let paths = [format!("/jobs/{job}"), format!("/api/v1/jobs/{job}"), "/jobs".to_owned(), "/api/v1/jobs".to_owned()];
    let shown = async |options: Options| {
        let served = Served::with(&db, options).await;
        let mut found = Vec::new();
        for path in &paths {
            let answer = served.client.get(path).await;
            assert_eq!(answer.status, 200, "{path}");
            found.push(answer.text().contains("the secret"));
        }
        found
    };
    assert_eq!(shown(Options::default()).await, [true, true, false, false], "lists never show payloads");
    assert_eq!(shown(Options::default().redact("do", ["Ok"])).await, [true, true, false, false], "the output is not under that key");
    for options in [Options::default().redact("do", ["*"]), Options::default().hide_payloads(true)] {
        assert_eq!(shown(options).await, [false; 4]);
    }
    db.finish().await;
}

/// Collects log output in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn neither_the_token_nor_a_payload_is_in_the_log() {
    let db = TestDb::new().await;
    let job = Do { act: Act::Ok("the secret".into()) }.enqueue(&db.pool).await.unwrap().id();
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing_subscriber::util::SubscriberInitExt::set_default(subscriber);
    let served = Served::with(&db, Options::default().token(TOKEN)).await;
    let bearer = ("Authorization", "Bearer correct horse battery staple");
    let own = format!("http://{}", served.client.address);
    let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", own.as_str())];
    served.client.ask("POST", "/login", &form, "token=correct+horse+battery+staple").await;
    for path in [format!("/jobs/{job}"), format!("/api/v1/jobs/{job}"), "/".to_owned()] {
        assert_eq!(served.client.ask("GET", &path, &[bearer], "").await.status, 200);
    }
    let body = r#"{"act":"priority","priority":"the secret"}"#;
    let wrong = served.client.ask("POST", &format!("/api/v1/jobs/{job}/act"), &[bearer, ("Content-Type", "application/json")], body).await;
    assert_eq!(wrong.status, 400);
    drop(guard);
    let output = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(output.contains("queue.find") || output.contains("find("), "the statements were logged: {output}");
    assert!(!output.contains("horse") && !output.contains("the secret"), "{output}");
    db.finish().await;
}

#[tokio::test]
async fn silent_clients_do_not_block_others_and_disconnected_ones_leave_no_transaction() {
    let db = TestDb::new().await;
    let served = Served::new(&db).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(tokio::net::TcpStream::connect(served.client.address).await.unwrap());
    }
    assert_eq!(served.client.get("/").await.status, 200);
    // The clients disconnect before they receive a response. The transactions of their requests must end nevertheless.
    for stream in &mut silent {
        tokio::io::AsyncWriteExt::write_all(stream, format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", served.client.address).as_bytes())
            .await
            .unwrap();
    }
    drop(silent);
    assert_eq!(served.client.get("/").await.status, 200);
    let open = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%' and pid <> pg_backend_pid()";
    tests::eventually("no transaction is left open", async || db.count(open).await == 0).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_database_that_does_not_answer_is_reported_after_the_timeout() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Ok("x".into())).await;
    let served = Served::new(&db).await;
    let mut lock = db.pool.begin().await.unwrap();
    sqlx::query("lock table queue.ready in access exclusive mode").execute(&mut *lock).await.unwrap();
    let (page, json) =
        (served.client.get("/").await, served.client.post(&format!("/api/v1/jobs/{job}/act"), &json!({ "act": "cancel" })).await);
    assert_eq!((page.status, json.status), (503, 503), "{}", page.text());
    assert!(page.text().contains("timed out"), "{}", page.text());
    lock.rollback().await.unwrap();
    assert_eq!(served.client.get("/").await.status, 200);
    let mut stream = tokio::net::TcpStream::connect(served.client.address).await.unwrap();
    let _ = stream.read(&mut [0; 0]).await;
    db.finish().await;
}
