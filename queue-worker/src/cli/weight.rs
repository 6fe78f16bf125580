//! `weight` command: shows and sets the weights of fairness keys.

use queue_core::Queue;
use serde_json::json;

use super::{
    audit::AuditedTransaction, name_check::check_type, open::open_store, print, problem::Problem, settings::Settings, values::NewWeight,
};

/// Sets the weight of the fairness key `key` if `new` is given. Prints the weight of `key`, or the weights of all keys if `key` is `None`.
pub(super) async fn weight(
    settings: &Settings,
    job_type: Option<&str>,
    key: Option<&str>,
    new: Option<NewWeight>,
    as_json: bool,
) -> Result<(), Problem> {
    let (database, store) = open_store(settings).await?;
    check_type(&database, store, job_type).await?;
    if let (Some(job_type), Some(key), Some(NewWeight(weight))) = (job_type, key, new) {
        let mut tx = AuditedTransaction::begin(database.pool(), store).await?;
        Queue::on(&mut tx).store(store).set_weight(job_type, key, weight).await?;
        tx.commit("weighted", format!("key {key} of type {job_type}"), 0).await?;
    }
    let mut found = database.queue().store(store).weights(job_type).await?;
    database.close().await;
    found.retain(|found| key.is_none_or(|key| found.fair == key));
    if as_json {
        return print::json(&json!({ "weights": found }));
    }
    if found.is_empty() {
        let of_type = job_type.map_or_else(String::new, |job_type| format!(" of the type {job_type}"));
        return print::lines(&match key {
            Some(key) => format!("the fair key {key}{of_type} has as many turns as any other"),
            None => format!("every fair key{of_type} has as many turns as any other"),
        });
    }
    let rows = found.iter().map(|found| [found.job_type.clone(), found.fair.clone(), found.weight.to_string()]);
    print::lines(&print::table(["job type", "fair key", "weight"], rows))
}
