//! Limits without room, and for how long the jobs that they hold up have waited.

use serde_json::json;
use sqlx::PgConnection;

use super::{
    checkup::Checkup,
    finding::{Finding, found},
    kind::FindingKind,
};
use crate::{
    error::Error,
    operate::{self, LimitStatus},
    schema::Store,
};

/// So many are told of, and of so many limits by key the keys are looked at.
const MOST: usize = 20;

/// A limit, or a key of one, whose room is used up.
struct Full {
    limit: String,
    /// The line of its key, if it is one by key.
    line: Option<i64>,
    finding: Finding,
}

/// Those whose jobs wait for too long.
pub(super) async fn full_limits(on: &mut PgConnection, store: Store, checkup: &Checkup) -> Result<Vec<Finding>, Error> {
    let mut full = Vec::new();
    let (keyed, whole): (Vec<_>, Vec<_>) =
        operate::limits(&mut *on, store).await?.into_iter().filter(|limit| limit.waiting > 0).partition(|limit| limit.keyed);
    full.extend(whole.into_iter().filter_map(of_all));
    for limit in keyed.iter().take(MOST) {
        full.extend(of_keys(on, store, limit).await?);
    }
    if full.is_empty() {
        return Ok(Vec::new());
    }
    let (names, lines): (Vec<String>, Vec<Option<i64>>) = full.iter().map(|one| (one.limit.clone(), one.line)).unzip();
    let query = sqlx::query_as(store.sql(include_str!("../../../sql/doctor_limits.sql"))).bind(names).bind(lines);
    let waits: Vec<(i64, f64)> = query.fetch_all(on).await?;
    let is_long = |number: usize| {
        waits.iter().any(|(of, waited_ms)| usize::try_from(*of) == Ok(number) && *waited_ms >= checkup.waited.as_secs_f64() * 1000.0)
    };
    // The database counts from one.
    let long = full.into_iter().enumerate().filter(|(index, _)| is_long(index + 1));
    Ok(long.map(|(_, one)| one.finding).take(MOST).collect())
}

/// A limit that is not by key.
fn of_all(limit: LimitStatus) -> Option<Full> {
    let most = limit.figures.concurrency.filter(|most| limit.used >= i64::from(*most))?;
    let says = format!("limit {} has no room: {} run, of {most}, and {} wait", limit.name, limit.used, limit.waiting);
    let finding = found(FindingKind::LimitFull, says, None, json!(limit));
    Some(Full { limit: limit.name, line: None, finding })
}

/// The keys of a limit whose own room is used up, and for which jobs wait.
async fn of_keys(on: &mut PgConnection, store: Store, limit: &LimitStatus) -> Result<Vec<Full>, Error> {
    let keys = operate::limit_keys(on, store, &limit.name).await?;
    let full = keys.into_iter().filter_map(|key| {
        let most = key.concurrency.map(i64::from).or(limit.figures.concurrency.map(i64::from));
        let most = most.filter(|most| key.waiting > 0 && key.used >= *most)?;
        let name = key.key.clone().map_or_else(|| format!("the key of line {}", key.line), |key| format!("key {key}"));
        let says = format!("limit {} has no room for {name}: {} run, of {most}, and {} wait", limit.name, key.used, key.waiting);
        let finding = found(FindingKind::LimitFull, says, None, json!({ "limit": limit, "key": key }));
        Some(Full { limit: limit.name.clone(), line: Some(key.line), finding })
    });
    Ok(full.collect())
}
