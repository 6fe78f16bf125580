//! Read-only operations of operators: lists, counts, history, explanations and findings. They run on the standby, if any.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use queue_core::{
    Job as _, JobId, JobRef, JobState, Queue,
    operate::{self, CauseKind, Checkup, Diagnosis, Filter, Histogram, HistoryRange, Patience, Severity},
};

use super::{
    jobs::{Echo, First, LogWriter, Try, echo},
    play::{Need, OperationGroup, operations, skip},
    world::{IDLE, World},
};

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "look",
    needs: Need::Worker,
    operations: operations![
        "list" => list,
        "list by metadata, error, age" => filtered,
        "list completed and dead jobs" => finished,
        "list with patience" => patiently,
        "find" => find,
        "counts" => counts,
        "oldest, backlog" => oldest,
        "workers" => workers,
        "history" => history,
        "dead letters by error" => dead_groups,
        "unserved" => unserved,
        "why" => why,
        "logs" => logs,
        "audit" => audit,
        "doctor" => doctor,
    ],
};

const LISTED: &str = "listed";

fn of_queue(queue: &str) -> Filter {
    Filter { queue: Some(queue.to_owned()), ..Filter::default() }
}

async fn list(world: &World) -> Result<()> {
    let jobs = (0..30).map(|n| echo(n.to_string()));
    Echo::enqueue_all(jobs, world.pool()).store(world.store).queue(LISTED).meta("tenant", "acme").await?;
    let queue = world.queries().await?;
    let page = queue.jobs().queue(LISTED).limit(20);
    let first = page.clone().list().await?;
    let second = page.before(first.next.context("there are more jobs")?).with_payloads().list().await?;
    ensure!((first.jobs.len(), second.jobs.len(), second.next) == (20, 10, None), "{} and {}", first.jobs.len(), second.jobs.len());
    ensure!(first.jobs[0].payload.is_none() && second.jobs[0].payload.is_some());
    Ok(())
}

async fn filtered(world: &World) -> Result<()> {
    let queue = world.queries().await?;
    let listed = queue.jobs().queue(LISTED);
    for (found, expected) in [
        (listed.clone().meta("tenant", "acme"), 30),
        (listed.clone().meta("tenant", "other"), 0),
        (listed.clone().of_type::<Echo>(), 30),
        (listed.clone().job_type("conf_try"), 0),
        (listed.clone().since(Duration::from_hours(1)), 30),
        (listed.clone().older_than(Duration::from_hours(1)), 0),
        (listed.clone().state(JobState::Dead), 0),
    ] {
        let what = format!("{found:?}");
        ensure!(found.list().await?.jobs.len() == expected, "{what}");
    }
    Ok(())
}

async fn finished(world: &World) -> Result<()> {
    let dead = Try { first: First::Always }.enqueue(world.pool()).store(world.store).await?;
    world.wait_for_state(dead.job_ref(), JobState::Dead).await?;
    let done = echo("listed").enqueue(world.pool()).store(world.store).await?;
    world.output(done).await?;
    let queue = world.queries().await?;
    let completed = queue.jobs().state(JobState::Completed).list().await?;
    ensure!(completed.jobs.iter().any(|job| job.id == done.id()), "the completed job is not listed");
    let mut failed = queue.jobs().state(JobState::Dead).error("intentional failure at every attempt").list().await?;
    queue.add_failures(&mut failed.jobs).await?;
    let found = failed.jobs.iter().find(|job| job.id == dead.id()).context("the dead job is not listed")?;
    ensure!(!found.failures.is_empty(), "{found:?}");
    Ok(())
}

async fn patiently(world: &World) -> Result<()> {
    let found = world.queries().await?.jobs().error("no such error").list_patiently(Patience::default()).await?;
    ensure!(found.jobs.is_empty());
    Ok(())
}

async fn find(world: &World) -> Result<()> {
    let job = echo("found").enqueue(world.pool()).store(world.store).queue(IDLE).await?;
    let read = world.read().await?;
    let found = job.find(read).await?;
    ensure!(found.payload.is_some_and(|payload| payload.get().contains("found")) && found.job_type == "conf_echo");
    ensure!(job.find_without_payload(read).await?.payload.is_none());
    ensure!(job.state(read).await? == JobState::Ready);
    let none = JobRef::from_id(JobId(1)).in_store(world.store);
    ensure!(matches!(none.find(read).await, Err(queue_core::Error::NotFound { .. })));
    Ok(())
}

async fn counts(world: &World) -> Result<()> {
    let read = world.read().await?;
    for found in [Queue::new(read).store(world.store).counts().await?, Queue::new(read).store(world.store).counts_exactly().await?] {
        let listed = found.iter().find(|count| count.queue == LISTED && count.state == JobState::Ready);
        ensure!(listed.is_some_and(|count| count.jobs == 30), "{listed:?}");
    }
    let busiest = Queue::new(read).store(world.store).busiest(3).await?;
    ensure!(!busiest.counts.is_empty() && !busiest.totals.is_empty() && busiest.more > 0, "{busiest:?}");
    let most =
        Queue::new(read).store(world.store).jobs().matching(&of_queue(LISTED)).apply(operate::Operation::Cancel).count_up_to(10).await?;
    ensure!(most >= 10, "{most}");
    Ok(())
}

async fn oldest(world: &World) -> Result<()> {
    let read = world.read().await?;
    let found = Queue::new(read).store(world.store).oldest().await?;
    ensure!(found.iter().any(|oldest| oldest.queue == LISTED && oldest.since.is_some()), "{found:?}");
    ensure!(Queue::new(read).store(world.store).oldest_of(2).await?.len() <= 3);
    let backlog = Queue::new(read).store(world.store).backlog(LISTED, 100).await?;
    ensure!(backlog.ready == 30 && backlog.since.is_some_and(|since| since.timestamp() > 0), "{backlog:?}");
    ensure!(backlog.since <= Some(Queue::new(read).store(world.store).now().await?));
    Ok(())
}

async fn workers(world: &World) -> Result<()> {
    let found = world.queries().await?.workers().await?;
    let own = found.iter().find(|worker| worker.name == "conformance").context("the worker is not listed")?;
    ensure!(own.alive && own.queues.iter().any(|queue| queue.starts_with("default")), "{own:?}");
    Ok(())
}

/// Checks the history of completed jobs. Waits for the counts, because workers flush counts only every ten seconds.
async fn history(world: &World) -> Result<()> {
    let last_hour = HistoryRange { job_type: Some("conf_echo".to_owned()), ..HistoryRange::default() };
    let mut figures = None;
    world
        .until("what was completed is counted", async || {
            figures = world.queries().await?.history(&last_hour).await?.into_iter().next();
            Ok(figures.as_ref().is_some_and(|figures| figures.completed > 0))
        })
        .await?;
    let figures = figures.context("there are no totals")?;
    ensure!(figures.attempts() >= figures.completed && figures.rate() > 0.0 && figures.failed() == 0, "{figures:?}");
    let run: &Histogram = &figures.run;
    ensure!(run.count() > 0 && run.quantile(0.5).is_some());
    let apart = HistoryRange { apart: true, step: Some(Duration::from_mins(1)), ..HistoryRange::default() };
    ensure!(world.queries().await?.history(&apart).await?.len() > 1);
    Ok(())
}

async fn dead_groups(world: &World) -> Result<()> {
    let found = world.queries().await?.dead_groups().await?;
    let own =
        found.groups.iter().find(|group| group.error.contains("intentional failure at every attempt")).context("the group is missing")?;
    ensure!(own.jobs >= 1 && own.job_type == "conf_try", "{own:?}");
    Ok(())
}

async fn unserved(world: &World) -> Result<()> {
    let job = echo("unserved").enqueue(world.pool()).store(world.store).queue(IDLE).await?;
    let read = world.read().await?;
    let found = Queue::new(read).store(world.store).unserved().await?;
    ensure!(found.iter().any(|unserved| unserved.queue == IDLE), "{found:?}");
    let record = job.find(read).await?;
    let of = Queue::new(read).store(world.store).unserved_of(&[record]).await?;
    ensure!(of.contains(&job.id()), "{of:?}");
    Ok(())
}

async fn why(world: &World) -> Result<()> {
    let (read, store) = (world.read().await?, world.store);
    let none = Queue::new(read).store(store).job(JobId(1)).why().await?;
    ensure!(none.is_absent() && none.first().kind == CauseKind::NoSuchJob, "{:?}", none.causes);
    let idle = echo("why").enqueue(world.pool()).store(store).queue(IDLE).await?;
    let later = echo("why").enqueue(world.pool()).store(store).after(Duration::from_mins(10)).await?;
    let queue = Queue::new(world.read().await?).store(store);
    let (idle, later) = (queue.job(idle.id()).why().await?, queue.job(later.id()).why().await?);
    ensure!(later.first().kind == CauseKind::Scheduled, "{:?}", later.causes);
    ensure!(matches!(idle.first().kind, CauseKind::NoWorker | CauseKind::Unserved), "{:?}", idle.causes);
    Ok(())
}

async fn logs(world: &World) -> Result<()> {
    let job = LogWriter {}.enqueue(world.pool()).store(world.store).await?;
    world.output(job).await?;
    let line = format!("a line of job {}", job.id());
    world
        .until("the log is stored", async || {
            let found = world.queries().await?.job(job.id()).logs().await?;
            Ok(found.iter().any(|log| log.text.contains(&line)))
        })
        .await
}

async fn audit(world: &World) -> Result<()> {
    let note = operate::Note { actor: "conformance".to_owned(), act: "look".to_owned(), what: "a test".to_owned() };
    let number = world.queue().record_operation(&note, 3).await?;
    let found = world.queries().await?.audit(None, 10).await?;
    ensure!(found.iter().any(|record| record.id == number && record.jobs == 3 && record.actor == "conformance"), "{found:?}");
    Ok(())
}

/// Runs the doctor. The findings depend on the server, so only a finding of severity `Broken` is an error.
async fn doctor(world: &World) -> Result<()> {
    let prefix = format!("{}_group", world.store.schema());
    let checkup = Checkup { role_prefix: Some(prefix), ..Checkup::default() };
    let diagnosis = Queue::new(world.direct()).store(world.store).doctor(&checkup).await;
    let broken: Vec<_> = diagnosis.findings.iter().filter(|finding| finding.severity == Severity::Broken).collect();
    ensure!(broken.is_empty() && diagnosis.server.is_some(), "{broken:?}");
    ensure!(diagnosis.worst() != Some(Severity::Broken));
    ensure!(
        diagnosis.findings.iter().all(|finding| finding.kind.severity() <= Severity::Warning && !finding.kind.consequence().is_empty())
    );
    let unreachable = Diagnosis::unreachable(world.store, "a test");
    ensure!(unreachable.findings.iter().all(|finding| !finding.kind.advice().is_empty()));
    if world.setup.read.is_none() {
        return Ok(());
    }
    // On a standby, the doctor must report that the server is a standby.
    let read = world.read().await?;
    let is_standby: bool = sqlx::query_scalar("select pg_is_in_recovery()").fetch_one(read).await?;
    if !is_standby {
        return skip("the server of the read URL is not a standby; the primary has no findings");
    }
    let diagnosis = Queue::new(read).store(world.store).doctor(&checkup).await;
    ensure!(diagnosis.findings.iter().any(|finding| finding.kind.to_string() == "standby"), "{:?}", diagnosis.findings);
    Ok(())
}
