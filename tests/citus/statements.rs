//! Tests the SQL statements of `queue-core` on every node, and those of `queue-worker` on the store's node. Each statement is executed
//! ten times, because PostgreSQL may change to a generic plan after five executions.

use std::{fs, path::Path, str::FromStr as _};

use queue_core::{Store, runner::locate};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, postgres::PgConnectOptions};
use tests::TestDb;

use super::cluster;

/// Returns the name and the statement of each file in a directory.
fn statements(folder: &str) -> Vec<(String, &'static str)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let files = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<(String, &'static str)> =
        files.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), &*fs::read_to_string(path).unwrap().leak())).collect();
    found.sort();
    assert!(found.len() > 25, "the statements were found");
    found
}

/// Executes the statement ten times with null parameters. Returns the SQLSTATE and the message of the first error.
async fn play(connection: &mut PgConnection, name: &str, statement: &str) -> Result<(), String> {
    const COUNT: &str = "select coalesce(cardinality(parameter_types), 0) from pg_prepared_statements where name = $1";
    let describe = |error: sqlx::Error| match error.as_database_error() {
        Some(error) => format!("{} {}", error.code().unwrap_or_default(), error.message()),
        None => error.to_string(),
    };
    sqlx::raw_sql(AssertSqlSafe(format!("prepare {name} as {statement}"))).execute(&mut *connection).await.map_err(describe)?;
    let count: i32 = sqlx::query_scalar(COUNT).bind(name).fetch_one(&mut *connection).await.map_err(describe)?;
    let nulls = vec!["null"; usize::try_from(count).unwrap()].join(", ");
    let execute = if count == 0 { format!("execute {name}") } else { format!("execute {name} ({nulls})") };
    for _ in 0..10 {
        sqlx::raw_sql(AssertSqlSafe(execute.clone())).execute(&mut *connection).await.map_err(describe)?;
    }
    Ok(())
}

async fn connect(url: &str) -> PgConnection {
    let options = PgConnectOptions::from_str(url).unwrap().options([("search_path", "pg_catalog"), ("statement_timeout", "20s")]);
    PgConnection::connect_with(&options).await.unwrap()
}

/// Returns the name of each statement in a directory, with the result of the statement on the server.
async fn answers(url: &str, store: Store, folder: &str) -> Vec<(String, Result<(), String>)> {
    let mut connection = connect(url).await;
    let mut all = Vec::new();
    for (name, statement) in statements(folder) {
        let result = play(&mut connection, &name, store.sql(statement)).await;
        if connection.ping().await.is_err() {
            connection = connect(url).await;
        }
        all.push((name, result));
    }
    all
}

fn code(result: &Result<(), String>) -> &str {
    result.as_ref().err().map_or("", |result| result.split(' ').next().unwrap())
}

/// Checks that each statement has the same result in the cluster as on plain PostgreSQL: success or the same SQLSTATE.
#[tokio::test]
async fn every_statement_runs_from_every_node() {
    let Some(db) = cluster("every statement from every node").await else { return };
    let plain = TestDb::new().await;
    let (mut faults, mut played) = (Vec::new(), 0);
    let expected = answers(&plain.url, Store::default(), "queue-core/sql").await;
    for url in db.urls() {
        for ((name, expected), (_, found)) in expected.iter().zip(answers(&url, Store::default(), "queue-core/sql").await) {
            played += 1;
            if code(expected) != code(&found) {
                faults.push(format!("{url}: {name}: {found:?}, plain: {expected:?}"));
            }
        }
    }
    let mut any = connect(&db.url).await;
    let owner = locate(&mut any, Store::default()).await.unwrap().unwrap();
    let url = db.urls().into_iter().find(|url| url.contains(&format!(":{}/", owner.node.port()))).unwrap();
    for folder in ["queue-core/sql", "queue-worker/sql"] {
        let expected = answers(&plain.url, Store::default(), folder).await;
        for ((name, expected), (_, found)) in expected.iter().zip(answers(&url, owner.store, folder).await) {
            played += 1;
            if code(expected) != code(&found) {
                faults.push(format!("its node: {name}: {found:?}, plain: {expected:?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{} of {played}:\n{}", faults.len(), faults.join("\n"));
    drop(any);
    plain.finish().await;
    db.finish().await;
}
