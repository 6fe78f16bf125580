//! Operations on jobs in many stores: on jobs given by name, or on all jobs that match a filter.

use std::{pin::pin, process::ExitCode, sync::Arc};

use queue_core::{
    Error, Queue,
    operate::{BulkOutcome, Filter, Operation},
    stores::{Member, StoreJob},
};
use serde_json::{Map, json};
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    failures::{FailedStore, report_failures},
    open::{QUERY_TIMEOUT, StoreScope, StoreSession},
};
use crate::{
    cli::{
        act::{ActResults, CONFIRM_HINT, COUNT_LIMIT, confirm, format_done, format_preview, needs_confirmation},
        act_args::{ActCommand, ActRequest},
        audit::audit_note,
        name_check::{UnknownNames, check_names, warn_of_unknown_names},
        print,
        problem::Problem,
        selection::JobSelection,
        settings::Settings,
        values::counted_jobs,
    },
    live::shutdown_signal,
};

pub(super) async fn act(settings: &Settings, command: ActCommand<StoreJob>) -> Result<ExitCode, Problem> {
    let request = command.into_request()?;
    if request.chosen.all { all(settings, &request).await } else { each(settings, request.act, &request.chosen).await }
}

/// Applies the operation to named jobs. A failed store does not affect the jobs of other stores.
async fn each(settings: &Settings, act: Operation, chosen: &JobSelection<StoreJob>) -> Result<ExitCode, Problem> {
    let names: Vec<&str> = chosen.ids.iter().map(StoreJob::store).collect();
    let opened = StoreSession::for_writing(settings, StoreScope::Stores(&names)).await?;
    // All store names are checked first, so that an unknown name is reported before any job is changed.
    let unknown = names.iter().find(|name| opened.record(name).is_err());
    if let Some(name) = unknown {
        opened.record(name)?;
    }
    let (mut answers, mut failed) = (ActResults::default(), Vec::<FailedStore>::new());
    for job in &chosen.ids {
        if failed.iter().any(|trouble| trouble.store == job.store()) {
            continue;
        }
        let acting = async {
            let member = opened.store(job.store()).await?;
            answers.act((member.pool(), member.store(), job.id()), job, act).await
        };
        let acted = timeout(QUERY_TIMEOUT, acting).await.unwrap_or_else(|_| Err(Error::Database(sqlx::Error::PoolTimedOut).into()));
        if let Err(problem) = acted {
            failed.push(FailedStore::of(job.store(), problem.text_with_fix()));
        }
    }
    let document = chosen.output.json.then(|| Map::from_iter([("failed".to_owned(), json!(failed))]));
    let code = answers.print(act, document)?;
    let code = report_failures(&failed, code);
    opened.close().await;
    Ok(code)
}

/// Number of jobs in a store that match the filter.
struct MatchCount {
    /// 0 if the jobs were not counted.
    jobs: u64,
    /// Queue and job type names in the filter that do not exist in this store.
    unknown: UnknownNames,
}

async fn all(settings: &Settings, request: &ActRequest<StoreJob>) -> Result<ExitCode, Problem> {
    let ActRequest { act, chosen, .. } = request;
    let (act, filter) = (*act, chosen.filter());
    check_names(&filter)?;
    let mut opened = StoreSession::for_writing(settings, StoreScope::All).await?;
    let is_counted = chosen.dry_run || needs_confirmation(act) && !chosen.yes;
    let most = if chosen.dry_run && chosen.exact { u64::MAX } else { COUNT_LIMIT };
    let count = if is_counted { Some(most) } else { None };
    let is_patient = most != COUNT_LIMIT;
    let found = opened.query_all(is_patient, |member| find(member, filter.clone(), act, count)).await?;
    warn_of_unknown_names(&filter, &found.iter().map(|(_, found)| &found.unknown).collect::<Vec<_>>());
    if chosen.dry_run {
        return dry_run(opened, act, &found, most, chosen.output.json).await;
    }
    let jobs: u64 = found.iter().map(|(_, found)| found.jobs.min(COUNT_LIMIT)).sum();
    if is_counted && jobs > 0 {
        let silent =
            if opened.failed.is_empty() { String::new() } else { format!(", and {} stores have not answered", opened.failed.len()) };
        let stores = found.iter().filter(|(_, found)| found.jobs > 0).count();
        let jobs = counted_jobs(jobs, found.iter().any(|(_, found)| found.jobs > COUNT_LIMIT));
        let stores = if stores == 1 { "1 store".to_owned() } else { format!("{stores} stores") };
        confirm(&format!("{jobs} would be {} in {stores}{silent}", act.done()), CONFIRM_HINT)?;
    }
    sweep(opened, request, &found).await
}

async fn find(member: Member, filter: Filter, act: Operation, most: Option<u64>) -> Result<MatchCount, Error> {
    let (pool, store) = (member.pool(), member.store());
    let unknown = UnknownNames::load(pool, store, &filter).await?;
    let jobs = match most {
        Some(most) => Queue::new(pool).store(store).jobs().matching(&filter).apply(act).count_up_to(most).await?,
        None => 0,
    };
    Ok(MatchCount { jobs, unknown })
}

async fn dry_run(
    opened: StoreSession,
    act: Operation,
    found: &[(Member, MatchCount)],
    most: u64,
    as_json: bool,
) -> Result<ExitCode, Problem> {
    let total: u64 = found.iter().map(|(_, found)| found.jobs.min(most)).sum();
    let is_partial = found.iter().any(|(_, found)| found.jobs > most);
    if as_json {
        let of = |(member, MatchCount { jobs, .. }): &(Member, MatchCount)| json!({ "store": member.name(), "found": (*jobs).min(most), "partial": *jobs > most });
        let stores: Vec<_> = found.iter().map(of).collect();
        print::json(&json!({ "stores": stores, "found": total, "partial": is_partial, "failed": opened.failed }))?;
    } else {
        let each = found.iter().filter(|(_, found)| found.jobs > 0);
        let each = each.map(|(member, found)| format!("{}: {}", member.name(), format_preview(act, found.jobs, most)));
        let all = format!("in all: {} would be {}", counted_jobs(total, is_partial), act.done());
        print::lines(&each.chain([all]).collect::<Vec<_>>().join("\n"))?;
    }
    let code = report_failures(&opened.failed, ExitCode::SUCCESS);
    opened.close().await;
    Ok(code)
}

/// Applies the operation in the stores in `found`, which are the stores that responded to the preceding query. With a rate, processes one
/// store at a time, so that the rate holds across all stores. A shutdown signal stops the operation after the current batch of each
/// store.
async fn sweep(mut opened: StoreSession, request: &ActRequest<StoreJob>, found: &[(Member, MatchCount)]) -> Result<ExitCode, Problem> {
    let ActRequest { act, chosen, rate } = request;
    let (act, rate, filter, noted, stop) = (*act, *rate, chosen.filter(), audit_note(act.done(), chosen.text()), CancellationToken::new());
    let stopped = shutdown_signal();
    let turn = Arc::new(Semaphore::new(if rate.is_some() { 1 } else { found.len().max(1) }));
    let has_answered: Vec<String> = found.iter().map(|(member, _)| member.name().to_owned()).collect();
    opened.keep_only(found);
    let sweeping = |member: Member| {
        let (filter, noted, stop, turn) = (filter.clone(), noted.clone(), stop.clone(), turn.clone());
        async move {
            let _turn = turn.acquire().await;
            if stop.is_cancelled() {
                return Ok(BulkOutcome::default());
            }
            let queue = member.queue();
            let acting = queue.jobs().matching(&filter).apply(act).noted(noted).until(stop.cancelled_owned());
            if let Some(rate) = rate { acting.rate(rate).await } else { acting.await }
        }
    };
    let answers = {
        let mut asking = pin!(opened.query_all(true, sweeping));
        tokio::select! {
            answers = &mut asking => answers?,
            () = stopped => {
                stop.cancel();
                asking.await?
            }
        }
    };
    let (done, cancelling) =
        answers.iter().fold((0, 0), |(done, cancelling), (_, swept)| (done + swept.done, cancelling + swept.cancelling));
    if chosen.output.json {
        let of = |(member, swept): &(Member, BulkOutcome)| json!({ "store": member.name(), act.done(): swept.done, "cancelling": swept.cancelling });
        let stores: Vec<_> = answers.iter().map(of).collect();
        print::json(&json!({ "stores": stores, act.done(): done, "cancelling": cancelling, "failed": opened.failed }))?;
    } else {
        let each = answers.iter().filter(|(_, swept)| swept.done + swept.cancelling > 0);
        let each = each.map(|(member, swept)| format!("{}: {}", member.name(), format_done(act, swept.done, swept.cancelling)));
        let all = format!("in all: {}", format_done(act, done, cancelling));
        print::lines(&each.chain([all]).collect::<Vec<_>>().join("\n"))?;
    }
    for trouble in opened.failed.iter_mut().filter(|trouble| has_answered.contains(&trouble.store)) {
        trouble.error.push_str("; its audit log shows what was done before");
    }
    let code = report_failures(&opened.failed, ExitCode::SUCCESS);
    opened.close().await;
    Ok(code)
}
