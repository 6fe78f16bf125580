//! Tests repeated failed logins, redirects to other sites, and requests that are rejected before they are processed.

use std::process::Stdio;

use axum::Router;
use queue_core::Store;
use queue_worker::{
    Error,
    dashboard::{Options, listen, service},
};
use serde_json::json;
use tests::{Act, TestDb};

use super::{Served, client::Client, enqueue};

const TOKEN: &str = "correct horse battery staple";

#[tokio::test]
async fn after_too_many_wrong_tokens_logins_are_blocked_and_cookies_still_work() {
    let db = TestDb::new().await;
    let served = Served::with(&db, Options::default().token(TOKEN)).await;
    let own = format!("http://{}", served.client.address);
    let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", own.as_str())];
    let log_in = async |token: &str| served.client.ask("POST", "/login", &form, &format!("token={}", token.replace(' ', "+"))).await;
    let cookie = log_in(TOKEN).await.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let mut wrong = 0;
    let refused = loop {
        let answer = if wrong % 2 == 0 {
            log_in(&format!("guess number {wrong} of many")).await
        } else {
            let bearer = format!("Bearer guess number {wrong} of many");
            served.client.ask("GET", "/api/v1/overview", &[("Authorization", &bearer)], "").await
        };
        if answer.status != 401 {
            break answer;
        }
        wrong += 1;
        assert!(wrong <= 20, "no client is blocked");
    };
    assert_eq!((wrong, refused.status), (20, 429));
    let right = log_in(TOKEN).await;
    let seconds: u64 = right.header("retry-after").unwrap().parse().unwrap();
    assert!(right.status == 429 && right.header("set-cookie").is_none() && (1..=61).contains(&seconds), "the right one is no oracle");
    assert!(right.header("content-type").unwrap().starts_with("text/html") && right.text().contains("too many failed logins"));
    let bearer = format!("Bearer {TOKEN}");
    let program = served.client.ask("GET", "/api/v1/overview", &[("Authorization", &bearer)], "").await;
    assert!(program.status == 429 && program.header("retry-after").is_some());
    assert_eq!(served.client.ask("GET", "/", &[("Cookie", &cookie)], "").await.status, 200, "logged-in clients stay logged in");
    assert_eq!(served.client.get("/login").await.status, 200);
    db.finish().await;
}

#[tokio::test]
async fn wrong_tokens_from_one_address_do_not_block_others_despite_forged_headers() {
    let db = TestDb::new().await;
    let served = Served::with(&db, Options::default().token(TOKEN)).await;
    let ask = async |client: &Client, token: &str, forwarded: &str| {
        let headers =
            [("Authorization", &*format!("Bearer {token}")), ("X-Forwarded-For", forwarded), ("Forwarded", &*format!("for={forwarded}"))];
        client.ask("GET", "/api/v1/overview", &headers, "").await.status
    };
    for wrong in 0..20 {
        assert_eq!(ask(&served.client, "wrong", &format!("192.0.2.{wrong}")).await, 401);
    }
    assert_eq!(ask(&served.client, TOKEN, "192.0.2.99").await, 429, "it is the same client, with any forged address");
    // On Linux, all addresses in 127.0.0.0/8 are local without configuration.
    if cfg!(target_os = "linux") {
        let other = served.client.coming_from("127.0.0.2".parse().unwrap());
        assert_eq!((ask(&other, TOKEN, "127.0.0.1").await, ask(&other, "wrong", "127.0.0.1").await), (200, 401));
    }
    // This server passes no client addresses to the dashboard, so all requests count as requests of one client.
    let (client, task) = nested(&db, "/q", Options::default().token(TOKEN)).await;
    for _ in 0..20 {
        assert_eq!(client.ask("GET", "/q/api/v1/overview", &[("Authorization", "Bearer wrong")], "").await.status, 401);
    }
    if cfg!(target_os = "linux") {
        let other = client.coming_from("127.0.0.2".parse().unwrap());
        assert_eq!(other.ask("GET", "/q/jobs", &[("Authorization", "Bearer x")], "").await.status, 429);
    }
    task.abort();
    db.finish().await;
}

/// Starts a server whose router nests the dashboard at the path `place`. The paths of requests must include `place`.
async fn nested(db: &TestDb, place: &str, options: Options) -> (Client, tokio::task::JoinHandle<()>) {
    let inside = service(db.pool.clone(), Store::default(), options).unwrap();
    let app = Router::new().nest_service(place, inside);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(listener.local_addr().unwrap());
    (client, tokio::spawn(async move { axum::serve(listener, app).await.unwrap() }))
}

#[tokio::test]
async fn no_link_or_redirection_leads_to_a_host_that_is_hidden_in_the_path() {
    let db = TestDb::new().await;
    for place in ["/\\evil.example", "/a/{tenant}"] {
        let (client, task) = nested(&db, place, Options::default().token(TOKEN)).await;
        for path in ["/\\evil.example/jobs", "/\\evil.example/", "/a/\\evil.example/jobs", "//evil.example/jobs"] {
            for headers in [&[][..], &[("Authorization", "Bearer correct horse battery staple")]] {
                let answer = client.ask("GET", path, headers, "").await;
                assert!(answer.status >= 400 && answer.header("location").is_none(), "{path}: {} {:?}", answer.status, answer.headers);
                assert!(!String::from_utf8_lossy(&answer.body).contains("evil.example"), "{path}");
            }
        }
        task.abort();
    }
    let (client, task) = nested(&db, "/a/{tenant}", Options::default().token(TOKEN)).await;
    assert_eq!(client.get("/a/acme/jobs").await.header("location"), Some("/a/acme/login"));
    task.abort();
    db.finish().await;
}

#[tokio::test]
async fn a_request_that_names_its_host_as_the_authority_alone_is_answered_and_a_foreign_one_is_not() {
    let db = TestDb::new().await;
    let (client, task) = nested(&db, "/admin/queue", Options::default()).await;
    let ask = async |target: &str| client.raw(format!("GET {target} HTTP/1.1\r\nConnection: close\r\n\r\n").as_bytes()).await.status;
    assert_eq!(ask("http://localhost/admin/queue/jobs").await, 200);
    assert_eq!(ask("http://LOCALHOST:7070/admin/queue/api/v1/overview").await, 200);
    for foreign in ["http://evil.example/admin/queue/jobs", "http://localhost@evil.example/admin/queue/jobs", "/admin/queue/jobs"] {
        assert_eq!(ask(foreign).await, 421, "{foreign}");
    }
    task.abort();
    db.finish().await;
}

/// Tests the checks of host and origin behind a proxy. A proxy may pass a host name that differs from the browser's, or the host name
/// without its port.
#[tokio::test]
async fn behind_a_proxy_a_browser_logs_in_and_a_rejected_request_names_the_setting() {
    let db = TestDb::new().await;
    let served = Served::with(&db, Options::default().token(TOKEN).host("admin.example.com")).await;
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let compared = "origin `https://admin.example.com:8443` does not match host `";
    for (host, origin, site, expected) in [
        ("127.0.0.1:7070", "https://admin.example.com", Some("same-origin"), Ok(())),
        ("admin.example.com", "https://admin.example.com:8443", Some("same-origin"), Ok(())),
        ("admin.example.com:443", "https://admin.example.com", None, Ok(())),
        ("admin.example.com", "http://admin.example.com:80", None, Ok(())),
        ("ADMIN.example.com:8443", "https://admin.example.com:8443", None, Ok(())),
        ("admin.example.com", "https://admin.example.com:8443", None, Err(format!("{compared}admin.example.com`"))),
        ("127.0.0.1:7070", "https://admin.example.com:8443", None, Err(format!("{compared}127.0.0.1:7070`"))),
        ("127.0.0.1:7070", "https://admin.example.com:8443", None, Err("proxy_set_header Host $http_host".to_owned())),
        ("admin.example.com", "https://admin.example.com", Some("same-site"), Err("Sec-Fetch-Site: same-site".to_owned())),
    ] {
        let headers = [Some(form), Some(("Host", host)), Some(("Origin", origin)), site.map(|site| ("Sec-Fetch-Site", site))];
        let headers: Vec<(&str, &str)> = headers.into_iter().flatten().collect();
        let answer = served.client.ask("POST", "/login", &headers, "token=correct+horse+battery+staple").await;
        match expected {
            Ok(()) => assert_eq!(answer.status, 303, "{headers:?}: {}", answer.text()),
            Err(part) => assert!(answer.status == 403 && answer.text().contains(&part), "{headers:?}: {}", answer.text()),
        }
    }
    let unknown = served.client.ask("GET", "/api/v1/overview", &[("Host", "queue.example.com:8443")], "").await;
    let text = unknown.text();
    assert!(unknown.status == 421 && text.contains("`queue.example.com`") && text.contains("--dashboard-host"), "{text}");
    db.finish().await;
}

#[tokio::test]
async fn a_token_that_could_be_guessed_is_refused_before_anything_is_served() {
    let db = TestDb::new().await;
    for token in ["", "short", "0123456789abcde"] {
        let refused = service(db.pool.clone(), Store::default(), Options::default().token(token)).unwrap_err();
        assert!(matches!(refused, Error::Config { key: "dashboard_token", .. }), "{refused}");
        let refused = listen("127.0.0.1:0".parse().unwrap(), Options::default().token(token)).await.unwrap_err();
        assert!(matches!(refused, Error::Config { key: "dashboard_token", .. }), "{refused}");
    }
    let long = service(db.pool.clone(), Store::default(), Options::default().token("x".repeat(Options::LONGEST_TOKEN + 1))).unwrap_err();
    assert!(matches!(long, Error::Config { key: "dashboard_token", .. }) && !long.to_string().contains("xx"), "{long}");
    // The environment variable of the token is set but empty.
    for arguments in [["dashboard", "--addr", "127.0.0.1:0"], ["run", "--dashboard", "127.0.0.1:0"]] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_test-cli"));
        command.args(arguments).env_clear().env("DATABASE_URL", &db.url).env("QUEUE_DASHBOARD_TOKEN", "").stdin(Stdio::null());
        let refused = command.output().unwrap();
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && message.contains("at least 16 characters"), "{message}");
    }
    db.finish().await;
}

#[tokio::test]
async fn no_operation_exceeds_the_dashboards_maximum_of_jobs() {
    let db = TestDb::new().await;
    for _ in 0..3 {
        enqueue(&db, Act::Ok("x".into())).await;
    }
    let served = Served::with(&db, Options::default().most_jobs(2)).await;
    let counted = served.client.post("/api/v1/jobs/count", &json!({ "act": "cancel", "filter": {} })).await;
    assert!(counted.status == 422 && counted.text().contains("more than 2 jobs"), "{}", counted.text());
    let act = async |at_most: u64| {
        served.client.post("/api/v1/jobs/act", &json!({ "act": "cancel", "filter": {}, "at_most": at_most })).await.status
    };
    assert_eq!((act(3).await, act(2).await), (422, 409), "neither all, nor as many as may be");
    assert_eq!(db.count("select count(*) from queue.ready").await, 3);
    let job: i64 = db.count("select min(id) from queue.ready").await;
    let one = json!({ "act": "cancel" });
    assert_eq!(served.client.post(&format!("/api/v1/jobs/{job}/act"), &one).await.status, 200);
    assert_eq!(act(2).await, 200);
    assert_eq!(db.count("select count(*) from queue.ready").await, 0);
    db.finish().await;
}
