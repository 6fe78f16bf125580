//! Tests the URL paths of stores, and attempts to reach a store without a login.

use std::collections::BTreeSet;

use axum::Router;
use queue_core::stores::Roster;
use queue_worker::dashboard::{Options, service_over};
use serde_json::json;
use tests::TestDb;
use tokio::net::TcpListener;

use super::{
    super::client::{Answer, Client},
    enqueue, roster_of, serve_stores, store, waits,
};

const TOKEN: &str = "correct horse battery staple";

/// Returns the URLs in a page.
fn links(text: &str) -> BTreeSet<String> {
    let named = ["href=\"", "src=\"", "action=\"", "data-act=\"", "data-count=\"", "data-base=\"", "hx-get=\""];
    let found = named.iter().flat_map(|name| text.split(*name).skip(1)).filter_map(|rest| rest.split('"').next());
    found.map(|link| link.replace("&amp;", "&").replace("&#38;", "&")).filter(|link| !link.starts_with('#')).collect()
}

#[tokio::test]
#[ignore = "deep"]
async fn every_link_of_every_page_stays_in_the_store_that_it_is_of() {
    let db = TestDb::new().await;
    let (acme, other) = (store(&db, "a.b:c-d_1", "s_a").await, store(&db, "other", "s_o").await);
    for member in [&acme, &other] {
        enqueue(member).await;
        let dead = "with dead as (delete from queue.ready where id = $1 returning *)
            insert into queue.dead (id, died_at, lane, attempts, crashes, error) select id, now(), lane, 1, 0, 'no way' from dead";
        let job = enqueue(member).await;
        sqlx::query(member.store().sql(dead)).bind(job).execute(member.pool()).await.unwrap();
    }
    let inside = service_over(&roster_of(&[&acme, &other]), Options::default().token(TOKEN)).unwrap();
    let app = Router::new().nest_service("/a/{store}", inside);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(listener.local_addr().unwrap());
    let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let bearer = [("Authorization", "Bearer correct horse battery staple")];
    let get = async |path: &str| client.ask("GET", path, &bearer, "").await;

    let (root, own) = ("/a/x", "/a/x/stores/a.b:c-d_1");
    let of_all = ["", "/", "/logout", "/assets/"].map(|end| format!("{root}{end}"));
    let (mut left, mut seen) = (vec![own.to_owned()], BTreeSet::new());
    while let Some(path) = left.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        assert!(seen.len() <= 400, "its pages never end: {path}");
        let answer = get(&path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert!(answer.text().contains("<small>a.b:c-d_1</small>"), "{path}");
        for link in links(answer.text()) {
            let is_asset = link.starts_with(&of_all[3]);
            assert!(link.starts_with(own) || is_asset || of_all.contains(&link), "{path} leads to {link}");
            if link.starts_with(own) && !link.contains("/api/") {
                left.push(link);
            } else if is_asset {
                assert_eq!(client.get(&link).await.status, 200, "{link}");
            }
        }
    }
    for page in ["/jobs", "/dead", "/history", "/queues", "/workers", "/schedules", "/limits", "/audit"] {
        assert!(seen.contains(&format!("{own}{page}")), "{page}: {seen:?}");
    }
    assert!(seen.iter().any(|path| path.contains("/jobs/")), "a job's page: {seen:?}");
    let moved = get(&format!("{own}/jobs?q=7")).await;
    assert_eq!(moved.header("location"), Some(&*format!("{own}/jobs/7")), "{}", moved.status);
    assert!(links(get(root).await.text()).iter().all(|link| link.starts_with(root)));
    let document = get(&format!("{own}/api/v1/openapi.json")).await.json();
    assert_eq!(document["servers"][0]["url"], own, "what is described there is there");
    task.abort();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_store_is_reached_by_its_name_alone_however_that_is_written() {
    let db = TestDb::new().await;
    let names = ["a.b:c-d_1", ".", "..", "A", "a", "api", "stores"];
    let roster = Roster::default();
    for (number, name) in names.into_iter().enumerate() {
        roster.put(store(&db, name, &format!("s_{number}")).await);
    }
    let served = serve_stores(&roster, Options::default()).await;
    let (page, overview) = (served.client.get("/").await, served.client.get("/api/v1/stores").await.json());
    for (number, name) in names.into_iter().enumerate() {
        let path = overview["stores"].as_array().unwrap().iter().find(|known| known["name"] == name).unwrap()["path"].as_str().unwrap();
        assert!(page.text().contains(&format!("href=\"{path}\"")) && !path.contains("/."), "{path}: a browser would go up");
        let job = enqueue(&roster.get(name).unwrap()).await;
        let found = served.client.get(&format!("{path}/api/v1/jobs/{job}")).await;
        assert_eq!(found.status, 200, "{name} is s_{number}: {}", found.text());
        assert!(served.client.get(path).await.text().contains(&format!("<small>{name}</small>")));
        assert_eq!(served.client.get(&format!("{path}/")).await.status, 200);
    }
    for written in ["/stores/a.b%3Ac-d_1/jobs", "/stores/a%2eb:c-d%5F1/jobs", "/stores/%41/jobs", "/stores/%2E%2e/jobs", "/stores/~a/jobs"]
    {
        assert_eq!(served.client.get(written).await.status, 200, "{written}");
    }
    let wrong = [
        "nobody",
        "AA",
        "a%00",
        "a%2Fjobs",
        "%ff",
        "a%20b",
        "a.b",
        "~~a",
        "a%",
        "%7e%7ea",
        "s_0",
        "*",
        "a;b",
        "a%0d%0aSet-Cookie:x=y",
        "%3Cscript%3E",
    ];
    for name in wrong {
        for end in ["", "/", "/jobs", "/live", "/assets/style.css", "/login"] {
            let answer = served.client.get(&format!("/stores/{name}{end}")).await;
            assert_eq!((answer.status, answer.header("set-cookie")), (404, None), "{name}{end}");
            assert!(answer.text().contains("There is no store") || answer.text().contains("there is no store"), "{name}{end}");
        }
        let answer = served.client.get(&format!("/stores/{name}/api/v1/overview")).await;
        assert_eq!((answer.status, answer.header("content-type")), (404, Some("application/json")), "{name}");
        let act = served.client.post(&format!("/stores/{name}/api/v1/pause"), &json!({ "everything": true })).await;
        assert_eq!(act.status, 404, "{name}");
    }
    for path in ["/stores/a//evil.example/jobs", "/stores//a/jobs", "/stores/a/../A/jobs", "/stores/a/stores/A/jobs", "/%73tores/a"] {
        let answer = served.client.get(path).await;
        assert!(answer.status == 404 && answer.header("location").is_none(), "{path}: {}", answer.status);
    }
    db.finish().await;
}

/// Paths that a client might request below the path of a store.
const REQUESTS: [&str; 12] = [
    "",
    "/",
    "/jobs",
    "/jobs/7",
    "/live",
    "/login",
    "/logout",
    "/assets/style.css",
    "/api/v1/overview",
    "/api/v1/openapi.json",
    "/api/v1/jobs",
    "/nothing",
];

#[tokio::test]
async fn no_store_is_reached_without_a_login() {
    let db = TestDb::new().await;
    let (acme, other) = (store(&db, "acme", "s_a").await, store(&db, "other", "s_o").await);
    let job = enqueue(&acme).await;
    let served = serve_stores(&roster_of(&[&acme, &other]), Options::default().token(TOKEN)).await;
    let (client, own) = (&served.client, format!("http://{}", served.client.address));
    let is_refused = |answer: &Answer| match answer.status {
        303 => answer.header("location") == Some("/login"),
        401 => !answer.text().contains("acme"),
        _ => false,
    };
    for name in ["acme", "other", "nobody", "~acme", "%61cme"] {
        for rest in REQUESTS {
            let path = format!("/stores/{name}{rest}");
            let tried = [&[][..], &[("Authorization", "Bearer wrong")], &[("Cookie", "queue_dashboard=00")]];
            for headers in tried.into_iter().take(if name == "acme" { 3 } else { 1 }) {
                let answer = client.ask("GET", &path, headers, "").await;
                assert!(is_refused(&answer), "{path} {headers:?}: {} {}", answer.status, answer.text());
            }
        }
        let act = client.post(&format!("/stores/{name}/api/v1/jobs/{job}/act"), &json!({ "act": "cancel" })).await;
        assert_eq!(act.status, 401);
        // Only the dashboard's own `/login` and `/logout` accept a form. A form for these paths under a store is rejected without a cookie.
        let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", own.as_str())];
        for path in ["login", "logout"] {
            let answer = client.ask("POST", &format!("/stores/{name}/{path}"), &form, "token=x").await;
            assert!(answer.status == 403 && answer.header("set-cookie").is_none(), "{path}: {}", answer.status);
        }
    }
    for path in ["/", "/api/v1/stores", "/api/v1/openapi.json", "/stores", "/stores/"] {
        assert!(is_refused(&client.get(path).await), "{path}");
    }
    for path in ["/", "/stores/acme", "/stores/acme/api/v1/overview", "/stores/acme/live"] {
        let foreign =
            client.ask("GET", path, &[("Host", "evil.example"), ("Authorization", "Bearer correct horse battery staple")], "").await;
        assert!(foreign.status == 421 && !foreign.text().contains("acme"), "{path}");
    }
    assert!(waits(&acme, job).await);
    db.finish().await;
}

#[tokio::test]
async fn one_login_covers_all_stores_and_only_their_own_pages_may_change_anything() {
    let db = TestDb::new().await;
    let (acme, other) = (store(&db, "acme", "s_a").await, store(&db, "other", "s_o").await);
    let (job, others) = (enqueue(&acme).await, enqueue(&other).await);
    let roster = roster_of(&[&acme, &other]);
    let served = serve_stores(&roster, Options::default().token(TOKEN)).await;
    let (client, own) = (&served.client, format!("http://{}", served.client.address));
    let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", own.as_str())];
    let entered = client.ask("POST", "/login", &form, "token=correct+horse+battery+staple").await;
    let cookie = entered.header("set-cookie").unwrap().to_owned();
    assert!(entered.header("location") == Some("/") && cookie.contains("Path=/;"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    for path in ["/", "/stores/acme", "/stores/other/jobs", "/stores/acme/api/v1/overview"] {
        assert_eq!(client.ask("GET", path, &[("Cookie", cookie)], "").await.status, 200, "{path}");
    }

    let (act, cancel) = (format!("/stores/acme/api/v1/jobs/{job}/act"), r#"{"act":"cancel"}"#);
    let json = ("Content-Type", "application/json");
    let attacks: [&[(&str, &str)]; 5] = [
        &[json, ("Origin", "http://evil.example")],
        &[json, ("Sec-Fetch-Site", "cross-site")],
        &[("Content-Type", "text/plain"), ("Origin", &own)],
        &[form[0], ("Origin", &own)],
        &[json, ("Origin", "null")],
    ];
    for headers in attacks {
        let headers: Vec<(&str, &str)> = headers.iter().copied().chain([("Cookie", cookie)]).collect();
        assert_eq!(client.ask("POST", &act, &headers, cancel).await.status, 403, "{headers:?}");
    }
    let headers = [json, ("Origin", &*own), ("Sec-Fetch-Site", "same-origin"), ("Cookie", cookie)];
    let elsewhere = client.ask("POST", &format!("/stores/other/api/v1/jobs/{job}/act"), &headers, cancel).await;
    assert_eq!(elsewhere.status, 404, "a job of another store is none of this one");
    assert!(waits(&acme, job).await);
    let long = client.ask("POST", &act, &headers, &format!("{{\"act\":\"cancel\",\"x\":\"{}\"}}", "x".repeat(70_000))).await;
    assert_eq!(long.status, 413, "requests are as bounded as with one store");
    let done = client.ask("POST", &act, &headers, cancel).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(!waits(&acme, job).await && waits(&other, others).await);
    let actor: String = sqlx::query_scalar(acme.store().sql("select actor from queue.audit limit 1")).fetch_one(acme.pool()).await.unwrap();
    assert!(actor.contains("with the token"), "{actor}");

    let reader = serve_stores(&roster, Options::default().read_only(true)).await;
    let refused = reader.client.post(&format!("/stores/other/api/v1/jobs/{others}/act"), &json!({ "act": "cancel" })).await;
    assert!(refused.status == 403 && waits(&other, others).await, "{}", refused.text());
    db.finish().await;
}
