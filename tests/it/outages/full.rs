//! Tests a full disk: a small file system contains the database's tables. Requires root.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::{Act, eventually, server::TestServer, skipped};

use super::{announced, begin, complains_with_restraint, nothing_is_charged, worker, works};

fn fill(file: &Path) {
    let mut file = File::create(file).unwrap();
    while file.write_all(&[0; 8 * 1024]).is_ok() {}
}

#[tokio::test]
#[ignore = "deep"]
async fn f46_a_full_disk_costs_no_attempt() {
    let server = TestServer::start().await.unwrap();
    let small = match server.small(64) {
        Ok(small) => small,
        Err(error) => return skipped("a full disk", &format!("only root may make a small file system: {error}")),
    };
    let mut admin = PgConnection::connect(&server.url("postgres")).await.unwrap();
    let statement = format!("create tablespace small location '{}'", small.display());
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut admin).await.unwrap();
    let database = server.database_with("narrow", "tablespace small").await.unwrap();
    let mut worker = worker(&server.url("narrow"));
    announced(&database, 1).await;
    // The output is incompressible and too long for the free pages.
    let output: String = (0..60_000).map(|_| fastrand::alphanumeric()).collect();
    begin(&database, 10, Act::Slowly(1500, Box::new(Act::Ok(output)))).await;
    let since = Instant::now();
    fill(&small.join("filling"));
    eventually("the worker has met the full disk", async || {
        worker.log_since(since).iter().any(|line| line.contains("No space left on device"))
    })
    .await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    fs::remove_file(small.join("filling")).unwrap();
    works(&database.pool).await;
    complains_with_restraint(&mut worker, since);
    nothing_is_charged(&database).await;
    database.pool.close().await;
}
