//! Tests the output of `show` for a ready job that is waiting for a limit.

use queue_core::{Job as _, JobId};
use tests::{Act, Do, TestDb, eventually};

use super::{json, on, text};

fn waits(db: &TestDb, job: JobId) -> Vec<String> {
    let shown = on(db, &["show", &job.to_string()]);
    let lines = text(&shown.stdout).lines().filter_map(|line| line.strip_prefix("waits "));
    lines.map(|line| line.trim_start().to_owned()).collect()
}

#[tokio::test]
#[ignore = "deep"]
async fn a_job_that_waits_for_a_limit_shows_the_limit_and_others_show_none() {
    let db = TestDb::new().await;
    let hang = async |key: &str| Do { act: Act::Hang }.enqueue(&db.pool).fair(key).await.unwrap().id();
    let runs = async |count| eventually("they run", async || db.count("select count(*) from effect").await == count).await;
    for set in [
        vec!["limits", "set", "type:do", "--per-key", "--concurrency", "1"],
        vec!["limits", "set", "type:do", "--key", "acme", "--concurrency", "2"],
    ] {
        assert!(on(&db, &set).status.success(), "{set:?}");
    }
    db.run_while(db.worker(), async {
        let acme = [hang("acme").await, hang("acme").await, hang("acme").await];
        let other = [hang("other").await, hang("other").await];
        runs(3).await;
        let mut permits: Vec<String> = Vec::new();
        for job in acme.into_iter().chain(other) {
            permits.extend(waits(&db, job));
        }
        permits.sort_unstable();
        let fair_id = db.count("select queue.fair_id_of('other')").await;
        assert_eq!(permits, ["permit type:do/acme: 2 of 2".to_owned(), format!("permit type:do/fair queue {fair_id}: 1 of 1")]);
        assert!(on(&db, &["limits", "set", "queue:default", "--concurrency", "9", "--rate", "1/1h"]).status.success());
        let (last, next) = (hang("third").await, hang("fourth").await);
        runs(4).await;
        let mut waiting: Vec<JobId> = [last, next].into_iter().filter(|job| !waits(&db, *job).is_empty()).collect();
        let waiting = waiting.pop().unwrap();
        let permits = waits(&db, waiting);
        assert!(permits.len() == 1 && permits[0].starts_with("rate queue:default: next 2"), "{permits:?}");
        let shown = async || json(&db, &["show", &waiting.to_string()]);
        // Jobs that were running before the limit was set are counted once their worker has read the limit.
        eventually("all that run are counted", async || shown().await["waits_for"][0]["used"] == 4).await;
        let shown = shown().await;
        let limit = &shown["waits_for"][0];
        assert_eq!((&limit["name"], &limit["concurrency"], &limit["keyed"]), (&"queue:default".into(), &9.into(), &false.into()));
        assert!(limit["next_ms"].as_f64().unwrap() > 3_000_000.0, "{shown}");
        assert_eq!(json(&db, &["show", &(if waiting == last { next } else { last }).to_string()]).get("waits_for"), None, "it runs");
    })
    .await;
    db.finish().await;
}
