//! Tests user interactions with the pages, and the layout of the pages.

use std::{path::Path, time::Duration};

use queue_core::{JobId, JobState, Queue, Store, operate, options::Limit, schedule};
use queue_worker::dashboard::Options;
use serde_json::json;
use sqlx::Executor as _;
use tests::{Act, Do, TestDb, eventually, skipped, within};

use super::{Served, browser::Browser, enqueue, some_jobs};

const TOKEN: &str = "correct horse battery staple";
const ENTER: &str = "\u{e007}";

fn on(served: &Served, path: &str) -> String {
    format!("http://{}{path}", served.client.address)
}

/// Fills the store with data for every page. Returns a completed job, a dead job and a waiting job.
async fn furnished(db: &TestDb) -> [JobId; 3] {
    let store = Store::default();
    let jobs = some_jobs(db).await;
    let failing = (0..12).map(|n| Do { act: Act::Terminal(format!("connection to 10.0.0.{n} refused after {n}00 ms")) });
    queue_core::Job::enqueue_all(failing, &db.pool).await.unwrap();
    db.run_until_idle(db.worker()).await;
    // Inserts a day of attempt statistics, extrapolated from the jobs above. Also inserts three workers.
    db.pool
        .execute(
            "insert into queue.tallied
               select date_bin('10 s', now() - n * interval '1 minute', '1970-01-01+00'), t.queue, t.job_type, t.completed * k * 12, 0, t.dead * (n % 5) / 3,
                 0, 0, 0, 0, 0, 0, 0, 0, t.run * k, t.start * (1 + n % 9)
               from (select * from queue.tallied) t
               cross join generate_series(1, 1439) n
               cross join lateral (select 12 + (8 * sin(n / 90.0))::integer + n * 7919 % 6 as k) k;
             select queue.add_tallies(1000000, null, null);
             insert into queue.worker (id, name, host, pid, version, queues, ttl, expires_at, busy, slots, memory)
               select gen_random_uuid(), 'worker-' || n, '10.0.0.' || n, 1, '0.1.0', '{mail}', '1 hour', now() + interval '1 hour', 9 * n % 16, 16, 90000000
               from generate_series(1, 3) n",
        )
        .await
        .unwrap();
    for n in 0..30 {
        enqueue(db, Act::Ok(format!("x{n}"))).await;
    }
    Queue::new(&db.pool).store(store).pause_with_reason(&operate::Scope::queue("mail"), Some("the mail server moves")).await.unwrap();
    Queue::new(&db.pool).store(store).set_capacity("mail", Some(1000)).await.unwrap();
    Queue::new(&db.pool).store(store).set_limit("type:do", Limit::new().concurrency(3), Some("gently")).await.unwrap();
    let hourly = schedule::Schedule::cron("0 * * * *").job(&Do { act: Act::Ok("tick".into()) });
    Queue::new(&db.pool).store(store).schedule("hourly").create(&hourly).await.unwrap();
    jobs
}

/// Returns the serious and critical accessibility violations of the page, or an empty list if the checker axe is not installed.
async fn violations(browser: &Browser, axe: Option<&str>) -> Vec<String> {
    let Some(axe) = axe else { return Vec::new() };
    browser.script(&format!("if (!window.axe) {{ {axe} ; window.axe = window.axe || axe }}")).await;
    let run = "const done = arguments[arguments.length - 1]; axe.run(document, { resultTypes: ['violations'] }).then(found => \
        done(found.violations.filter(of => ['serious', 'critical'].includes(of.impact)).map(of => of.id + ': ' + of.nodes[0].html + ' ' + of.nodes[0].failureSummary)), \
        error => done(['' + error]))";
    let found = browser.wait_script(run).await;
    found.as_array().unwrap().iter().map(|of| of.as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
#[ignore = "browser"]
async fn every_page_renders_on_small_and_large_screens_in_both_themes() {
    let db = TestDb::new().await;
    let [done, dead, waiting] = furnished(&db).await;
    let Some(browser) = Browser::start("the dashboard's pages in a browser").await else { return db.finish().await };
    let axe =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/any_language/node_modules/axe-core/axe.min.js"));
    if axe.is_err() {
        skipped("the dashboard's pages by axe", "the package axe-core is not installed");
    }
    let axe = axe.ok();
    let open = Served::new(&db).await;
    Queue::new(&db.pool)
        .record_operation(&operate::Note { actor: "ada".into(), act: "requeued".into(), what: "jobs of queue:mail".into() }, 12)
        .await
        .unwrap();
    let locked = Served::with(&db, Options::default().token(TOKEN)).await;
    let [done, dead, waiting] = [done, dead, waiting].map(|job| format!("/jobs/{job}"));
    let mut pages = vec![("login", on(&locked, "/login"))];
    let addresses = [
        ("overview", "/"),
        ("jobs", "/jobs"),
        ("jobs-dead", "/jobs?state=dead"),
        ("job-done", &done),
        ("job-dead", &dead),
        ("job-waiting", &waiting),
        ("dead", "/dead"),
        ("history", "/history"),
        ("queues", "/queues"),
        ("workers", "/workers"),
        ("schedules", "/schedules"),
        ("limits", "/limits"),
        ("audit", "/audit"),
        ("missing", "/jobs/7"),
    ];
    pages.extend(addresses.map(|(name, path)| (name, on(&open, path))));
    let mut faults = Vec::new();
    for (name, url) in &pages {
        browser.open(url).await;
        for (width, theme) in [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")] {
            browser.set_view(width, theme).await;
            let wide = browser.script("return document.documentElement.scrollWidth - innerWidth").await.as_i64().unwrap();
            let landmarks = browser.script("return document.querySelectorAll('main h1').length").await;
            if wide > 0 || landmarks != 1 {
                faults.push(format!("{name} at {width}: {wide} px too wide, {landmarks} headings"));
            }
            faults.extend(violations(&browser, axe.as_deref()).await.into_iter().map(|of| format!("{name} {theme} {width}: {of}")));
            browser.picture(&format!("{name}-{width}-{theme}")).await;
        }
        // The console also contains an error for the missing page, which is expected.
        let complaints = browser.complaints().await;
        faults.extend(
            complaints
                .into_iter()
                .filter(|complaint| !(*name == "missing" && complaint.contains("404")))
                .map(|complaint| format!("{name}: {complaint}")),
        );
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    drop(browser);
    db.finish().await;
}

#[tokio::test]
#[ignore = "browser"]
async fn clicks_and_keys_run_their_operations() {
    let db = TestDb::new().await;
    let [_, dead, _] = furnished(&db).await;
    let Some(browser) = Browser::start("clicks and keys on the dashboard").await else { return db.finish().await };
    let served = Served::with(&db, Options::default().token(TOKEN)).await;
    let at = async |what: &str| within(Duration::from_secs(20), what, async || browser.address().await.contains(what)).await;
    browser.open(&on(&served, "/jobs")).await;
    at("/login").await;
    browser.click("#token").await;
    browser.keys(&format!("{TOKEN}{ENTER}")).await;
    within(Duration::from_secs(20), "the overview", async || browser.script("return document.title").await == json!("Overview · queue"))
        .await;
    // Navigate to a job by keyboard only.
    browser.keys("/").await;
    browser.keys(&format!("no way{ENTER}")).await;
    at("/jobs?q=no").await;
    browser.keys("j").await;
    browser.keys(ENTER).await;
    at(&format!("/jobs/{dead}")).await;
    browser.keys("?").await;
    assert_eq!(browser.script("return document.getElementById('keys').open").await, json!(true));
    browser.keys("\u{e00c}").await;
    browser.click("form.act button.strong").await;
    db.until(dead, JobState::Ready).await;
    let script = "return document.getElementById('notice').innerText + document.querySelector('#live .state').innerText";
    within(Duration::from_secs(20), "the page shows it", async || {
        let shown = browser.script(script).await.as_str().unwrap_or_default().to_owned();
        shown.contains(&format!("job {dead} is requeued")) && shown.ends_with("ready")
    })
    .await;
    browser.click("button.danger").await;
    within(Duration::from_secs(20), "a dialog opens", async || browser.has_dialog().await).await;
    assert_eq!(browser.accept().await, "Cancel this job?");
    db.until(dead, JobState::Cancelled).await;
    // Requeue a group of dead letters; the dialog shows the number of jobs.
    browser.open(&on(&served, "/dead")).await;
    browser.click("#live button.strong").await;
    within(Duration::from_secs(20), "a dialog opens", async || browser.has_dialog().await).await;
    assert_eq!(browser.accept().await, "12 jobs would be requeued. Continue?");
    eventually("the group is requeued, and the other one stays", async || db.count("select count(*) from queue.dead").await == 1).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    db.finish().await;
}

#[tokio::test]
#[ignore = "browser"]
async fn the_overview_and_a_job_change_by_themselves() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Ok("x".into())).await;
    let Some(browser) = Browser::start("the dashboard as it changes").await else { return db.finish().await };
    let served = Served::new(&db).await;
    browser.open(&on(&served, "/")).await;
    let ready = "return document.querySelector('a[href=\"/jobs?state=ready\"] b').innerText";
    assert_eq!(browser.script(ready).await, json!("1"));
    enqueue(&db, Act::Ok("y".into())).await;
    within(Duration::from_secs(20), "the overview counts it", async || browser.script(ready).await == json!("2")).await;
    browser.open(&on(&served, &format!("/jobs/{job}"))).await;
    db.run_until_idle(db.worker()).await;
    let state = "return document.querySelector('#live .state').innerText";
    within(Duration::from_secs(20), "the job is completed on its page", async || browser.script(state).await == json!("completed")).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    drop(browser);
    db.finish().await;
}
