//! Removes each guard in turn, and runs the tests that must detect the removal. The tests are built once with `--cfg queue_mutants`,
//! so that statements can be replaced at run time.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::{Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::Parser;
use queue_core::{Store, migrate};
use queue_worker::embedded::{Embedded, EmbeddedOptions};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::{
    Mutation, Statement,
    mutation::code,
    statements,
    suite::{Suite, build},
};
use crate::target;

/// Remove each guard of each statement in turn. A test must fail every time
#[derive(Debug, Parser)]
#[command(name = "cargo guards")]
struct Args {
    /// Remove only guards whose file or promise contains one of the given texts
    only: Vec<String>,
    /// Number of guards to remove at the same time, each with its own server
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Number of model test sequences per guard
    #[arg(long, default_value_t = 150)]
    sequences: u32,
    /// Also remove guards that are known to be redundant
    #[arg(long)]
    redundant: bool,
    /// Run the tests of each statement without removing a guard. No test may fail
    #[arg(long)]
    intact: bool,
}

/// Time limit for the tests of one guard.
const PATIENCE: Duration = Duration::from_mins(5);

/// Number of leftover databases above which all of them are dropped.
const MAX_LEFTOVERS: usize = 30;

/// Outcome of removing one guard.
enum GuardResult {
    Killed(String),
    Survived,
    /// The tests did not finish within the time limit.
    Late,
    /// The mutated statement is not valid SQL, for the given reason.
    Invalid(String),
    Redundant(String),
}

struct GuardReport {
    name: String,
    result: GuardResult,
    seconds: f64,
}

/// Entry point of the program.
pub fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("guards: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let suites = build()?;
    let folder = target().join("guards");
    fs::create_dir_all(&folder)?;
    let statements = statements()?;
    let queue = Mutex::new(select_tasks(args, &statements)?);
    if let Some(unknown) = queue.lock().unwrap_or_else(PoisonError::into_inner).iter().find_map(|task| task.unknown_test(&suites)) {
        bail!("no test is named {unknown}");
    }
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let (report, reports) = mpsc::channel();
    std::thread::scope(|scope| {
        for slot in 0..args.jobs.max(1) {
            let (report, next, suites, folder) = (report.clone(), &next, &suites, &folder);
            scope.spawn(move || {
                let runner = GuardRunner::new(args, suites, folder.join(format!("{}-{slot}.json", std::process::id())));
                match runner {
                    Ok(runner) => {
                        while let Some(task) = next() {
                            let began = Instant::now();
                            let result = runner.remove(&task);
                            let seconds = began.elapsed().as_secs_f64();
                            let _ = report.send(result.map(|result| GuardReport { name: task.name, result, seconds }));
                        }
                    }
                    Err(error) => drop(report.send(Err(error))),
                }
            });
        }
        drop(report);
        print_reports(reports)
    })
}

/// Guard to remove, with its statement. If `mutation` is `None`, the tests run on the unchanged statement.
struct Task<'a> {
    name: String,
    statement: &'a Statement,
    mutation: Option<&'a Mutation>,
    tests: &'static [&'static str],
}

impl Task<'_> {
    /// Returns the first listed test that does not exist.
    fn unknown_test(&self, suites: &[Suite]) -> Option<&'static str> {
        self.tests.iter().copied().find(|filter| !suites.iter().any(|suite| suite.has(filter)))
    }
}

/// Returns the selected tasks in reverse order, because tasks are taken from the end.
fn select_tasks<'a>(args: &Args, statements: &'a [Statement]) -> Result<Vec<Task<'a>>> {
    let mut tasks = Vec::new();
    for statement in statements {
        let mut intact = HashSet::new();
        for mutation in &statement.mutations {
            let tests = statement.noticed_by(mutation);
            let what = if args.intact { "intact" } else { &mutation.promise };
            let name = format!("{}: {what}", statement.file);
            if args.intact && !intact.insert(tests) || !args.only.is_empty() && !args.only.iter().any(|part| name.contains(part.as_str())) {
                continue;
            }
            if tests.is_empty() {
                bail!("{name}: `noticed.rs` lists no test");
            }
            tasks.push(Task { name, statement, mutation: (!args.intact).then_some(mutation), tests });
        }
    }
    tasks.reverse();
    Ok(tasks)
}

/// Prints a line for each task, then the totals.
fn print_reports(reports: mpsc::Receiver<Result<GuardReport>>) -> Result<bool> {
    let (mut killed, mut total, mut redundant, mut invalid, mut survivors) = (0, 0, 0, Vec::new(), Vec::new());
    for report in reports {
        let GuardReport { name, result, seconds } = report?;
        match result {
            GuardResult::Killed(test) => {
                (killed, total) = (killed + 1, total + 1);
                println!("killed    {seconds:>5.1}s  {name} <- {test}");
            }
            GuardResult::Survived => {
                total += 1;
                println!("SURVIVED  {seconds:>5.1}s  {name}");
                survivors.push(name);
            }
            GuardResult::Late => {
                total += 1;
                println!("TOO LONG  {seconds:>5.1}s  {name}");
                survivors.push(name);
            }
            GuardResult::Invalid(why) => {
                println!("INVALID   {seconds:>5.1}s  {name}: {why}");
                invalid.push(name);
            }
            GuardResult::Redundant(why) => {
                redundant += 1;
                println!("redundant         {name}: {why}");
            }
        }
    }
    println!("{}", json!({ "killed": killed, "total": total, "redundant": redundant, "survivors": survivors, "invalid": invalid }));
    println!("{killed}/{total}");
    Ok(killed == total && invalid.is_empty())
}

/// Runner that removes guards on its own server, one after another.
struct GuardRunner<'a> {
    args: &'a Args,
    suites: &'a [Suite],
    /// File from which the tests read the mutation.
    change: PathBuf,
    server: Embedded,
    runtime: tokio::runtime::Runtime,
}

impl<'a> GuardRunner<'a> {
    fn new(args: &'a Args, suites: &'a [Suite], change: PathBuf) -> Result<Self> {
        let settings = [("max_connections", "300"), ("shared_buffers", "64MB")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let server = Embedded::start(EmbeddedOptions { settings: settings.to_vec(), ..EmbeddedOptions::temporary() })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            run_all(&mut PgConnection::connect(server.url()).await?, "create database checked").await?;
            let url = server.url().replacen("/postgres?", "/checked?", 1);
            run_all(&mut PgConnection::connect(&url).await?, &migrate::print(Store::default())).await
        })?;
        Ok(Self { args, suites, change, server, runtime })
    }

    /// Removes the task's guard and runs the tests.
    fn remove(&self, task: &Task) -> Result<GuardResult> {
        let mut instead = serde_json::Map::new();
        if let Some(mutation) = task.mutation {
            if let (Some(why), false) = (&mutation.redundant, self.args.redundant) {
                return Ok(GuardResult::Redundant(why.clone()));
            }
            let without = mutation.apply(&task.statement.text)?;
            if !task.statement.is_migration && parameters(&without) != parameters(&task.statement.text) {
                return Ok(GuardResult::Invalid("a parameter is missing, so every call would fail".to_owned()));
            }
            if let Err(error) = self.runtime.block_on(self.check(task.statement, &without)) {
                return Ok(GuardResult::Invalid(format!("{error:#}")));
            }
            instead.insert(task.statement.text.clone(), json!(without));
        }
        fs::write(&self.change, serde_json::to_string(&instead)?)?;
        let result = self.test(task.tests)?;
        self.runtime.block_on(self.clear(task.statement.is_migration))?;
        Ok(result)
    }

    /// Runs the tests, and stops at the first test that fails again when it is repeated.
    fn test(&self, filters: &[&str]) -> Result<GuardResult> {
        let until = Instant::now() + PATIENCE;
        let settings = [
            ("QUEUE_MUTANTS", self.change.display().to_string()),
            ("QUEUE_TEST_DATABASE_URL", self.server.url().to_owned()),
            ("PROPTEST_CASES", self.args.sequences.to_string()),
        ];
        let mut pardoned: HashSet<String> = HashSet::new();
        for filter in filters {
            for suite in self.suites.iter().filter(|suite| suite.has(filter)) {
                while let Some(failed) = suite.first_failure(filter, &pardoned, &settings, until)? {
                    if Instant::now() >= until {
                        return Ok(GuardResult::Late);
                    }
                    // On a busy machine a test may fail because of a timeout, so only a repeated failure counts.
                    if suite.first_failure(&format!("--exact {failed}"), &HashSet::new(), &settings, until)?.is_some() {
                        return Ok(GuardResult::Killed(failed));
                    }
                    pardoned.insert(failed);
                }
            }
        }
        Ok(GuardResult::Survived)
    }

    /// Checks that a statement is valid. Prepares the statement, or applies the migration and calls its functions.
    async fn check(&self, statement: &Statement, text: &str) -> Result<()> {
        let url = self.server.url().replacen("/postgres?", "/checked?", 1);
        if !statement.is_migration {
            return run_all(&mut PgConnection::connect(&url).await?, &format!("prepare without_it as {text}")).await;
        }
        let (fresh, original) = (migrate::print(Store::default()), &statement.text);
        if !fresh.contains(original) {
            bail!("{} is not part of a new store, or has changed since this program was built", statement.file);
        }
        let mut on = PgConnection::connect(&url).await?;
        run_all(&mut on, "drop schema queue cascade").await?;
        let applied = run_all(&mut on, &fresh.replacen(original, text, 1)).await;
        let outcome = match applied {
            Ok(()) => run_all(&mut on, CALLS).await,
            failed => failed,
        };
        run_all(&mut on, &format!("rollback; drop schema if exists queue cascade; {fresh}")).await?;
        outcome
    }

    /// Drops the leftover databases of killed tests, once there are more than `MAX_LEFTOVERS`. If `templates` is set, also drops template
    /// databases.
    async fn clear(&self, templates: bool) -> Result<()> {
        let mut admin = PgConnection::connect(self.server.url()).await?;
        // Each template database belongs to one version of the schema. The template of a mutated migration is never used again.
        let left = "select datname::text from pg_database where datname like 't\\_%' or datname like 'queue\\_template%' and $1";
        let left = sqlx::query_scalar::<_, String>(left).bind(templates).fetch_all(&mut admin).await?;
        for name in left.iter().filter(|_| left.len() > MAX_LEFTOVERS) {
            run_all(&mut admin, &format!("drop database {name} with (force)")).await?;
        }
        Ok(())
    }
}

async fn run_all(on: &mut PgConnection, text: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(on).await?;
    Ok(())
}

/// Statements that call the functions of the migrations. The first two statements drop the eight day partitions of a new store, and then
/// create the partitions of the coming days.
const CALLS: &str = "select queue.drop_day('-30 days') from generate_series(1, 8); select queue.add_days(9);
  select queue.enqueue('do', '{}'), queue.enqueue('do', '{}', '{\"after\": \"1 hour\", \"meta\": {\"a\": 1}}'), queue.wake('default'),
    queue.ensure_lane('default', 'do', 7::smallint, true); select queue.drop_day('-2 days');
  select queue.enqueue_with('do', '{}', jsonb_build_object('key', 'a', 'unique_key', k::text)),
    queue.try_enqueue('do', '{}', '{\"key\": \"a\"}') from generate_series(1, 2) k;
  select queue.unblock(0, 9), queue.forget_keys(9), queue.cancel_waiting_all('{}'), queue.cancel_running_all('{}'), queue.run_now_all('{}'),
    queue.reschedule_all('{}', now()), queue.set_priority_all('{}', 7), queue.requeue_all('{}'), queue.discard_all('{}'), queue.reopen(7);
  select queue.notify_waiters(), queue.set_capacity('default', 9); select queue.job_states('{7}'); select queue.status(7)";

/// Returns the parameter numbers that occur in a statement.
fn parameters(text: &str) -> BTreeSet<u32> {
    let behind = text.lines().flat_map(|line| code(line).split('$').skip(1));
    behind.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).collect()
}
