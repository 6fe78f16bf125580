//! Tests workers that connect to the server through a pooler that rejects or ignores startup settings.

use std::time::{Duration, Instant};

use tests::{
    Act, eventually,
    pooler::{Settings, pooler},
    server::{TestServer, url},
};

use super::{announced, enqueue, is_completed, nothing_is_charged, patient_worker, works};

#[tokio::test]
#[ignore = "deep"]
async fn f39_a_pooler_that_drops_the_settings_is_noticed_and_jobs_run_nevertheless() {
    let server = TestServer::start().await.unwrap();
    for settings in [Settings::Refused, Settings::Ignored] {
        let name = format!("{settings:?}").to_lowercase();
        let (began, database) = (Instant::now(), server.database(&name).await.unwrap());
        let port = pooler(server.port(), settings).await.unwrap();
        let mut worker = patient_worker(&url(port, &name), Duration::from_secs(30));
        announced(&database, 1).await;
        let ours = "select count(*) from pg_stat_activity where application_name like 'queue-worker %' and datname = current_database()";
        eventually("it is connected", async || database.count(ours).await.unwrap() >= 4).await;
        works(&database.pool).await;
        // Behind a pooler, a notification may never arrive. The next enqueue sends none, because no worker is registered as idle.
        sqlx::query("delete from queue.idle").execute(&database.pool).await.unwrap();
        let job = enqueue(&database.pool, Act::Ok(String::new())).await;
        eventually("it is found by a poll", async || is_completed(&database.pool, job).await).await;
        nothing_is_charged(&database).await;
        let lines = worker.log_since(began);
        let warnings = lines.iter().filter(|line| line.contains("a pooler is in front of the database")).count();
        assert!((1..=3).contains(&warnings), "{lines:#?}");
        assert!(!worker.has_ended());
    }
}
