//! Jobs of many stores: those of a kind, newest first, and one by its name.

use std::{collections::HashSet, process::ExitCode};

use queue_core::{
    Error, JobId,
    operate::{self, Filter, JobRecord, Patience, Pause},
    stores::{Member, StoreJob},
};
use serde::Serialize;
use serde_json::json;

use super::{
    open::{About, Opened},
    told::tell,
};
use crate::{
    cli::{
        chosen::List,
        known_queue::{Unknown, check_names, tell_unknown},
        list::{Served, table},
        print,
        problem::{Problem, REFUSED, warn},
        settings::Settings,
        show::JobDetail,
        why::describe,
    },
    inert,
    program::name_commands,
};

/// The part of a list that one store has.
pub(super) struct Part {
    jobs: Vec<JobRecord>,
    /// From where the store goes on.
    next: Option<JobId>,
    more: bool,
    unserved: HashSet<JobId>,
    pauses: Vec<Pause>,
    /// The names that it does not know.
    unknown: Unknown,
}

/// What is asked of each.
#[derive(Clone)]
struct Question {
    filter: Filter,
    /// Those of a key, and how many.
    key: Option<(String, String, u32)>,
}

/// A job in JSON, with the name of its store and its own name.
#[derive(Serialize)]
struct InStore<T> {
    store: String,
    store_job: String,
    #[serde(flatten)]
    job: T,
}

/// `jobs`: of all stores together.
pub(super) async fn jobs(settings: &Settings, asked: &List) -> Result<ExitCode, Problem> {
    asked.check()?;
    let filter = asked.filter();
    check_names(&filter)?;
    if !asked.output.json && filter.limit > Filter::MOST {
        warn(&format!("a list has at most {} jobs of a store", Filter::MOST));
    }
    let key = asked.of_key().map(|(queue, key, most)| (queue.to_owned(), key.to_owned(), most));
    let question = Question { filter: filter.clone(), key };
    let mut opened = Opened::to_look(settings, About::All).await?;
    let answers = opened.ask(false, |member| part(member, question.clone())).await?;
    tell_unknown(&filter, &answers.iter().map(|(_, part)| &part.unknown).collect::<Vec<_>>());
    let (shown, next) = together(&answers, filter.limit as usize, question.key.is_some());
    let more = next.is_some() || question.key.is_some() && answers.iter().any(|(_, part)| part.more);
    let rows = shown.into_iter().map(|(member, part, job)| (name(member, job.id), Served::new(job, &part.pauses, &part.unserved)));
    if asked.output.json {
        let rows: Vec<_> = rows.map(|(name, job)| InStore::new(&name, job)).collect();
        print::json(&json!({ "jobs": rows, "next": next, "more": more, "failed": opened.failed }))?;
    } else {
        let mut rows = rows.peekable();
        let text = if rows.peek().is_none() { asked.none() } else { table(rows) };
        let rest = match next {
            Some(next) => format!("\n\nolder jobs: --before {next}"),
            None if more => "\n\nand more behind them: `--limit` shows more".to_owned(),
            None => String::new(),
        };
        print::lines(&(text + &rest))?;
    }
    let code = tell(&opened.failed, ExitCode::SUCCESS);
    opened.close().await;
    Ok(code)
}

async fn part(member: Member, Question { filter, key }: Question) -> Result<Part, Error> {
    let (pool, store) = (member.pool(), member.store());
    let unknown = Unknown::to(pool, store, &filter).await?;
    let (jobs, next, more) = if let Some((queue, key, most)) = key {
        let line = operate::in_line(pool, store, &queue, &key, most).await?;
        (line.jobs, None, line.more)
    } else {
        let page = operate::list_patiently(pool, store, &filter, Patience::default()).await?;
        (page.jobs, page.next, page.next.is_some())
    };
    let unserved = operate::unserved_of(pool, store, &jobs).await?;
    Ok(Part { jobs, next, more, unserved, pauses: operate::pauses(pool, store).await?, unknown })
}

/// The newest of all parts, and from where the list goes on. Of each store everything is known down to where its part ends; below the first such end
/// the list would have gaps.
fn together(parts: &[(Member, Part)], most: usize, is_of_key: bool) -> (Vec<(&Member, &Part, &JobRecord)>, Option<JobId>) {
    let mut all: Vec<_> = parts.iter().flat_map(|(member, part)| part.jobs.iter().map(move |job| (member, part, job))).collect();
    if is_of_key {
        return (all, None);
    }
    let mut end = parts.iter().filter_map(|(_, part)| part.next).max();
    all.sort_by(|one, other| other.2.id.cmp(&one.2.id).then_with(|| one.0.name().cmp(other.0.name())));
    all.retain(|(.., job)| end.is_none_or(|end| job.id >= end));
    let most = most.min(Filter::MOST as usize);
    if all.len() > most {
        // Stores that were enqueued into at one time may have jobs of one id: they stay together.
        let last = all[most - 1].2.id;
        all.retain(|(.., job)| job.id >= last);
        end = Some(last);
    }
    (all, end)
}

fn name(member: &Member, id: JobId) -> StoreJob {
    StoreJob::new(member.name(), id).unwrap_or_else(|_| unreachable!("the name of a member was checked"))
}

impl<T> InStore<T> {
    fn new(name: &StoreJob, job: T) -> Self {
        Self { store: name.store().to_owned(), store_job: name.to_string(), job }
    }
}

/// `show`: one job.
pub(super) async fn show(settings: &Settings, job: &StoreJob, with: (bool, bool), as_json: bool) -> Result<(), Problem> {
    let opened = Opened::to_look(settings, About::Stores(&[job.store()])).await?;
    let detail = opened.answer(job, async |of| JobDetail::read(of.pool(), of.store(), job.id(), with).await).await?;
    opened.close().await;
    if as_json {
        return print::json(&InStore::new(job, detail.document()));
    }
    print::lines(&detail.text(job))
}

/// `why`: what keeps one from running.
pub(super) async fn why(settings: &Settings, job: &StoreJob, as_json: bool) -> Result<ExitCode, Problem> {
    let opened = Opened::to_look(settings, About::Stores(&[job.store()])).await?;
    let why = name_commands(opened.answer(job, async |of| operate::why(of.pool(), of.store(), job.id()).await).await?);
    let database = opened.record(job.store())?.database.clone();
    opened.close().await;
    if as_json {
        print::json(&InStore::new(job, &why))?;
    } else {
        let has_fix = why.causes.iter().any(|cause| cause.fix.is_some());
        let place = if has_fix {
            format!("\nin: the database `{}`, which DATABASE_URL is to name for a fix", inert::line(&database))
        } else {
            String::new()
        };
        print::lines(&(describe(&why, job) + &place))?;
    }
    Ok(if why.is_absent() { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS })
}
