//! `stores jobs`, `stores show` and `stores why`: show jobs of many stores.

use std::{collections::HashSet, process::ExitCode};

use queue_core::{
    Error, JobId, Queue,
    operate::{Filter, JobRecord, Patience, Pause},
    stores::{Member, StoreJob},
};
use serde::Serialize;
use serde_json::json;

use super::{
    failures::report_failures,
    open::{StoreScope, StoreSession},
};
use crate::{
    cli::{
        list::{ListedJob, table},
        name_check::{UnknownNames, check_names, warn_of_unknown_names},
        print,
        problem::{Problem, REFUSED, warn},
        selection::ListArgs,
        settings::Settings,
        show::JobDetail,
        why::describe,
    },
    escape,
    program::name_commands,
};

/// Jobs of one store, to be merged with the jobs of the other stores into one list.
pub(super) struct StoreJobs {
    jobs: Vec<JobRecord>,
    /// Value of [`Filter::before`] for the store's next page. `None` on the last page.
    next: Option<JobId>,
    more: bool,
    unserved: HashSet<JobId>,
    pauses: Vec<Pause>,
    /// Queue and job type names in the filter that do not exist in this store.
    unknown: UnknownNames,
}

/// Query for one page of jobs, sent to each store.
#[derive(Clone)]
struct StoreJobsQuery {
    filter: Filter,
    /// Queue, ordering key and maximum number of jobs. `None` unless an ordering key was given.
    key: Option<(String, String, u32)>,
}

/// Job in the `--json` output, with the name of its store and the text form of its [`StoreJob`].
#[derive(Serialize)]
struct JobInStore<T> {
    store: String,
    store_job: String,
    #[serde(flatten)]
    job: T,
}

/// Runs `stores jobs`, which lists jobs of all stores.
pub(super) async fn jobs(settings: &Settings, args: &ListArgs) -> Result<ExitCode, Problem> {
    args.check()?;
    let filter = args.filter();
    check_names(&filter)?;
    if !args.output.json && filter.limit > Filter::MOST {
        warn(&format!("a list has at most {} jobs of a store", Filter::MOST));
    }
    let key = args.of_key().map(|(queue, key, most)| (queue.to_owned(), key.to_owned(), most));
    let question = StoreJobsQuery { filter: filter.clone(), key };
    let mut opened = StoreSession::for_reading(settings, StoreScope::All).await?;
    let answers = opened.query_all(false, |member| load_jobs(member, question.clone())).await?;
    warn_of_unknown_names(&filter, &answers.iter().map(|(_, part)| &part.unknown).collect::<Vec<_>>());
    let (shown, next) = merge(&answers, filter.limit as usize, question.key.is_some());
    let more = next.is_some() || question.key.is_some() && answers.iter().any(|(_, part)| part.more);
    let rows = shown.into_iter().map(|(member, part, job)| (store_job(member, job.id), ListedJob::new(job, &part.pauses, &part.unserved)));
    if args.output.json {
        let rows: Vec<_> = rows.map(|(name, job)| JobInStore::new(&name, job)).collect();
        print::json(&json!({ "jobs": rows, "next": next, "more": more, "failed": opened.failed }))?;
    } else {
        let mut rows = rows.peekable();
        let text = if rows.peek().is_none() { args.empty_text() } else { table(rows) };
        let rest = match next {
            Some(next) => format!("\n\nolder jobs: --before {next}"),
            None if more => "\n\nand more after these: `--limit` shows more".to_owned(),
            None => String::new(),
        };
        print::lines(&(text + &rest))?;
    }
    let code = report_failures(&opened.failed, ExitCode::SUCCESS);
    opened.close().await;
    Ok(code)
}

async fn load_jobs(member: Member, StoreJobsQuery { filter, key }: StoreJobsQuery) -> Result<StoreJobs, Error> {
    let (pool, store) = (member.pool(), member.store());
    let unknown = UnknownNames::load(pool, store, &filter).await?;
    let (jobs, next, more) = if let Some((queue, key, most)) = key {
        let line = Queue::new(pool).store(store).jobs_of_key(&queue, &key, most).await?;
        (line.jobs, None, line.more)
    } else {
        let page = Queue::new(pool).store(store).jobs().matching(&filter).list_patiently(Patience::default()).await?;
        (page.jobs, page.next, page.next.is_some())
    };
    let unserved = Queue::new(pool).store(store).unserved_of(&jobs).await?;
    Ok(StoreJobs { jobs, next, more, unserved, pauses: Queue::new(pool).store(store).pauses().await?, unknown })
}

/// Merges the lists of all stores, newest first. Returns the jobs, and the value of [`Filter::before`] for the next page. If a store has
/// another page, its list contains all matching jobs only down to its `next` id. The merged list therefore ends at the highest `next` id,
/// so that no page omits a job. If `is_of_key` is `true`, the lists are concatenated without sorting, and there is no next page.
fn merge(parts: &[(Member, StoreJobs)], most: usize, is_of_key: bool) -> (Vec<(&Member, &StoreJobs, &JobRecord)>, Option<JobId>) {
    let mut all: Vec<_> = parts.iter().flat_map(|(member, part)| part.jobs.iter().map(move |job| (member, part, job))).collect();
    if is_of_key {
        return (all, None);
    }
    let mut end = parts.iter().filter_map(|(_, part)| part.next).max();
    all.sort_by(|one, other| other.2.id.cmp(&one.2.id).then_with(|| one.0.name().cmp(other.0.name())));
    all.retain(|(.., job)| end.is_none_or(|end| job.id >= end));
    let most = most.min(Filter::MOST as usize);
    if all.len() > most {
        // Jobs of different stores can have the same id. All jobs with the last id stay on this page, because the next page contains only
        // lower ids.
        let last = all[most - 1].2.id;
        all.retain(|(.., job)| job.id >= last);
        end = Some(last);
    }
    (all, end)
}

fn store_job(member: &Member, id: JobId) -> StoreJob {
    StoreJob::new(member.name(), id).unwrap_or_else(|_| unreachable!("the name of a member was checked"))
}

impl<T> JobInStore<T> {
    fn new(name: &StoreJob, job: T) -> Self {
        Self { store: name.store().to_owned(), store_job: name.to_string(), job }
    }
}

/// Runs `stores show`, which shows one job.
pub(super) async fn show(settings: &Settings, job: &StoreJob, with: (bool, bool), as_json: bool) -> Result<(), Problem> {
    let opened = StoreSession::for_reading(settings, StoreScope::Stores(&[job.store()])).await?;
    let detail = opened.query_store(job, async |of| JobDetail::read(of.pool(), of.store(), job.id(), with).await).await?;
    opened.close().await;
    if as_json {
        return print::json(&JobInStore::new(job, detail.document()));
    }
    print::lines(&detail.text(job))
}

/// Runs `stores why`, which explains why a job is not running.
pub(super) async fn why(settings: &Settings, job: &StoreJob, as_json: bool) -> Result<ExitCode, Problem> {
    let opened = StoreSession::for_reading(settings, StoreScope::Stores(&[job.store()])).await?;
    let why = name_commands(opened.query_store(job, async |of| of.queue().job(job.id()).why().await).await?);
    let database = opened.record(job.store())?.database.clone();
    opened.close().await;
    if as_json {
        print::json(&JobInStore::new(job, &why))?;
    } else {
        let has_fix = why.causes.iter().any(|cause| cause.fix.is_some());
        let place = if has_fix {
            format!("\nin: the database `{}`, which DATABASE_URL must name for a fix", escape::line(&database))
        } else {
            String::new()
        };
        print::lines(&(describe(&why, job) + &place))?;
    }
    Ok(if why.is_absent() { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS })
}
