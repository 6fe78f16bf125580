//! Tests encrypted payloads. A payload is never stored in plaintext, every process with the keys can read it, and a missing key loses no
//! job.

mod at_rest;
mod changes;
mod faults;
mod hashed;
mod kit;
mod processes;
mod schedules;

use queue_core::{JobId, Keyring, Secret};
use sqlx::AssertSqlSafe;
use tests::TestDb;

/// Sensitive text that no table may contain.
const CARD: &str = "4111-hunter2";

/// Defines a job type for one test with its own keyring, because a process has only one keyring of each name. The job returns the length
/// of `card`, and fails if `card` is empty.
macro_rules! sealed {
    ($type:ident, $name:literal, $keyring:literal $(, $($option:tt)*)?) => {
        #[queue_core::job(send_only, name = $name, seal = $keyring, output = usize $(, $($option)*)?)]
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        struct $type {
            card: String,
        }

        impl queue_core::Handler for $type {
            async fn run(self, _: &queue_core::Context) -> queue_core::JobResult<usize> {
                if self.card.is_empty() { Err("no card".into()) } else { Ok(self.card.len()) }
            }
        }

        #[allow(dead_code, reason = "not all tests enqueue the same")]
        impl $type {
            fn card() -> Self {
                Self { card: super::CARD.to_owned() }
            }
        }
    };
}
use sealed;

fn secret(byte: u8) -> Secret {
    Secret::new([byte; 32])
}

/// Registers a keyring with one key in this process.
fn give(keyring: &str, key: &str, byte: u8) {
    queue_core::use_keyring(keyring, Keyring::new(key, secret(byte)).hashing(secret(255))).unwrap();
}

/// Returns the tables of the store in which at least one row contains the text.
async fn tables_with(db: &TestDb, text: &str) -> Vec<String> {
    let tables = "select relname::text from pg_class where relnamespace = 'queue'::regnamespace and relkind in ('r', 'p') order by 1";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&db.pool).await.unwrap();
    assert!(tables.len() > 20, "{tables:?}");
    let mut found = Vec::new();
    for table in tables {
        if db.count(&format!("select count(*) from queue.{table} t where strpos(t::text, '{text}') > 0")).await > 0 {
            found.push(table);
        }
    }
    found
}

/// Returns the payload as stored.
async fn stored(db: &TestDb, job: JobId) -> String {
    sqlx::query_scalar("select payload::text from queue.job where id = $1").bind(job).fetch_one(&db.pool).await.unwrap()
}

/// Returns the number of attempts and the error of a dead letter.
async fn dead(db: &TestDb, job: JobId) -> (i16, String) {
    sqlx::query_as("select attempts, error from queue.dead where id = $1").bind(job).fetch_one(&db.pool).await.unwrap()
}

/// Returns the error of a job's last failed attempt.
async fn failure(db: &TestDb, job: JobId) -> String {
    let last = "select error from queue.failure where id = $1 order by at desc limit 1";
    sqlx::query_scalar(last).bind(job).fetch_one(&db.pool).await.unwrap()
}

/// Runs a statement that changes the store directly, to simulate corruption.
async fn tamper(db: &TestDb, statement: &str) {
    let changed = sqlx::query(AssertSqlSafe(statement.to_owned())).execute(&db.pool).await.unwrap().rows_affected();
    assert!(changed > 0, "{statement}");
}
