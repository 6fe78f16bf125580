//! Tests a dashboard search that few jobs match. The page appears immediately, shows how far back the search has scanned, and continues
//! the search.

use std::time::Duration;

use serde_json::json;
use tests::{TestDb, within};

use super::{Served, browser::Browser};
use crate::operate::rare::FILL;

#[tokio::test]
#[ignore = "browser"]
async fn a_search_for_a_rare_job_shows_its_progress_and_continues_by_a_link_or_by_itself() {
    let db = TestDb::new().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(FILL.replace("24000", "120000"))).execute(&db.pool).await.unwrap();
    let served = Served::new(&db).await;
    let (mut path, mut pages, mut found) = ("/jobs?q=type:rare".to_owned(), 0, 0);
    loop {
        let page = served.client.get(&path).await.text().to_owned();
        found += page.matches("<th scope=\"row\">").count();
        let Some(next) = page.split("rel=\"next\" href=\"").nth(1) else { break };
        let next = next.split('"').next().unwrap().to_owned();
        if page.contains("<th scope=\"row\">") {
            assert!(page.contains(">Older jobs</a>") && !page.contains("hx-get"), "what was found is not pushed away: {page}");
        } else {
            let is_shown = page.contains("No matching jobs back to <time") && page.contains(">Search further back</a>");
            assert!(is_shown && page.contains(&format!("hx-get=\"{next}\" hx-trigger=\"load")), "{page}");
        }
        path = next.replace("&#38;", "&").replace("&amp;", "&");
        pages += 1;
    }
    assert!(found == 3 && pages > 1, "{found} after {pages} pages");
    assert!(served.client.get("/jobs?q=queue:nowhere&before=1").await.text().contains("No older jobs."));
    if let Some(browser) = Browser::start("a search that goes on by itself").await {
        browser.open(&format!("http://{}/jobs?q=type:rare", served.client.address)).await;
        let rows = "return document.querySelectorAll('#live tbody tr').length > 0";
        within(Duration::from_secs(30), "it has searched far enough", async || browser.script(rows).await == json!(true)).await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    }
    db.finish().await;
}
