//! Limits without room, and for how long the jobs that they hold up have waited.

use serde::Serialize;
use serde_json::json;
use sqlx::{FromRow, PgConnection};

use super::{
    checkup::Checkup,
    finding::{Finding, found},
    kind::FindingKind,
};
use crate::{error::Error, schema::Store};

/// So many are told of, those that wait longest.
const MOST: i32 = 20;

/// A limit, or a key of one, whose room is used up.
#[derive(FromRow, Serialize)]
struct Full {
    name: String,
    /// Of a limit by key: the line of the key, and its text if something was said of it.
    line: Option<i64>,
    key: Option<String>,
    used: i64,
    concurrency: i32,
    waiting: i64,
    /// Whether more may wait.
    partial: bool,
    /// For how long the first job has waited.
    first_ms: f64,
}

/// Those whose jobs wait for too long.
pub(super) async fn full_limits(on: &mut PgConnection, store: Store, checkup: &Checkup) -> Result<Vec<Finding>, Error> {
    let query = sqlx::query_as(store.sql(include_str!("../../../sql/doctor_limits.sql")));
    let query = query.bind(checkup.waited.as_secs_f64() * 1000.0).bind(MOST);
    let full: Vec<Full> = query.fetch_all(on).await?;
    Ok(full.into_iter().map(|full| found(FindingKind::LimitFull, says(&full), None, json!(full))).collect())
}

fn says(full: &Full) -> String {
    let Full { name, used, concurrency, waiting, .. } = full;
    let of = match (&full.key, full.line) {
        (Some(key), _) => format!(" for key {key}"),
        (None, Some(line)) => format!(" for the key of line {line}"),
        (None, None) => String::new(),
    };
    let more = if full.partial { " or more" } else { "" };
    format!("limit {name} has no room{of}: {used} run, of {concurrency}, and {waiting}{more} wait")
}
