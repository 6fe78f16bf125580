//! Finds limits that have no free permit and whose first ready job has waited longer than `Checkup::waited`.

use serde::Serialize;
use serde_json::json;
use sqlx::{FromRow, PgConnection};

use super::{
    checkup::Checkup,
    finding::{Finding, build_finding},
    kind::FindingKind,
};
use crate::{error::Error, schema::Store};

/// Maximum number of findings. The limits with the longest waits are reported.
const MAX_FINDINGS: i32 = 20;

/// Limit, or one key of a limit, whose permits are all in use.
#[derive(FromRow, Serialize)]
struct ExhaustedLimit {
    name: String,
    /// Hash of the key, which is also the id of the key's fair queue; `None` if the limit is not keyed.
    fair_id: Option<i64>,
    /// Text of the key, if the key has individual settings.
    key: Option<String>,
    used: i64,
    concurrency: i32,
    waiting: i64,
    /// Whether more jobs are waiting than were counted.
    partial: bool,
    /// Waiting time of the first waiting job, in milliseconds.
    first_ms: f64,
}

/// Returns a finding for each exhausted limit whose first ready job has waited longer than [`Checkup::waited`].
pub(super) async fn find_exhausted_limits(on: &mut PgConnection, store: Store, checkup: &Checkup) -> Result<Vec<Finding>, Error> {
    let query = sqlx::query_as(store.sql(include_str!("../../../sql/doctor_limits.sql")));
    let query = query.bind(checkup.waited.as_secs_f64() * 1000.0).bind(MAX_FINDINGS);
    let limits: Vec<ExhaustedLimit> = query.fetch_all(on).await?;
    Ok(limits.into_iter().map(|limit| build_finding(FindingKind::LimitFull, describe(&limit), None, json!(limit))).collect())
}

fn describe(limit: &ExhaustedLimit) -> String {
    let ExhaustedLimit { name, used, concurrency, waiting, .. } = limit;
    let of = match (&limit.key, limit.fair_id) {
        (Some(key), _) => format!(" for key {key}"),
        (None, Some(fair_id)) => format!(" for the key of the fair queue {fair_id}"),
        (None, None) => String::new(),
    };
    let more = if limit.partial { " or more" } else { "" };
    format!("limit {name} is exhausted{of}: {used} of {concurrency} permits are held, and {waiting}{more} jobs wait")
}
