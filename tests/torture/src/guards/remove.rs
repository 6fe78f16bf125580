//! Removes the guards, one at a time, and runs the tests that are to notice: built once, since statements are rewritten at run time.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use queue_core::{Store, migrate};
use queue_worker::embedded::{Embedded, EmbeddedOptions};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::{Guard, Statement, statements};

/// Removes each guard of each statement in turn; a test must fail every time.
#[derive(Debug, Parser)]
#[command(name = "cargo guards")]
struct Args {
    /// Only guards whose file or name contains one of these.
    only: Vec<String>,
    /// How many to have removed at a time, each with a server of its own.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Sequences of the model test for each.
    #[arg(long, default_value_t = 150)]
    sequences: u32,
    /// Also removes those that are known to be redundant.
    #[arg(long)]
    redundant: bool,
    /// Runs the tests of each statement without removing anything: none may fail.
    #[arg(long)]
    intact: bool,
}

/// The tests of one guard may take this long.
const PATIENCE: Duration = Duration::from_secs(150);

/// More databases than this are not left lying about.
const MANY: usize = 30;

/// A test that needs no statement of ours, or that fails by itself on a busy machine.
const SKIPPED: [&str; 2] = ["a_worker_keeps_house_by_itself", "whatever_meets_a_heartbeat"];

/// What became of one.
enum Fate {
    Killed(String),
    Survived,
    /// Its tests did not come to an end.
    Late,
    /// Without it the statement is none.
    Invalid(String),
    Redundant(&'static str),
}

struct Found {
    name: String,
    fate: Fate,
    seconds: f64,
}

/// What the program does.
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
    let binary = build()?;
    let folder = root().join("target/guards");
    fs::create_dir_all(&folder)?;
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|part| name.contains(part.as_str()));
    let mut queue = Vec::new();
    for statement in statements() {
        let guards = if args.intact { &INTACT } else { statement.guards };
        let named = guards.iter().map(|guard| (statement, guard, format!("{}: {}", statement.file, guard.what)));
        queue.extend(named.filter(|(.., name)| wanted(name)));
    }
    queue.reverse();
    let queue = Mutex::new(queue);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let (report, reports) = mpsc::channel();
    std::thread::scope(|scope| {
        for slot in 0..args.jobs.max(1) {
            let (report, next, binary, folder) = (report.clone(), &next, &binary, &folder);
            scope.spawn(move || {
                let bench = Bench::new(args, binary, folder.join(format!("{}-{slot}.json", std::process::id())));
                match bench {
                    Ok(bench) => {
                        while let Some((statement, guard, name)) = next() {
                            let began = Instant::now();
                            let fate = bench.remove(statement, guard);
                            let found = fate.map(|fate| Found { name, fate, seconds: began.elapsed().as_secs_f64() });
                            let _ = report.send(found);
                        }
                    }
                    Err(error) => drop(report.send(Err(error))),
                }
            });
        }
        drop(report);
        tell(reports)
    })
}

const INTACT: [Guard; 1] = [Guard { what: "intact", from: "", to: "", redundant: None }];

/// A line for each, and the sum.
fn tell(reports: mpsc::Receiver<Result<Found>>) -> Result<bool> {
    let (mut killed, mut total, mut redundant, mut invalid, mut survivors) = (0, 0, 0, Vec::new(), Vec::new());
    for found in reports {
        let Found { name, fate, seconds } = found?;
        match fate {
            Fate::Killed(test) => {
                (killed, total) = (killed + 1, total + 1);
                println!("killed    {seconds:>5.1}s  {name} <- {test}");
            }
            Fate::Survived => {
                total += 1;
                println!("SURVIVED  {seconds:>5.1}s  {name}");
                survivors.push(name);
            }
            Fate::Late => {
                total += 1;
                println!("TOO LONG  {seconds:>5.1}s  {name}");
                survivors.push(name);
            }
            Fate::Invalid(why) => {
                println!("INVALID   {seconds:>5.1}s  {name}: {why}");
                invalid.push(name);
            }
            Fate::Redundant(why) => {
                redundant += 1;
                println!("redundant         {name}: {why}");
            }
        }
    }
    println!("{}", json!({ "killed": killed, "total": total, "redundant": redundant, "survivors": survivors, "invalid": invalid }));
    println!("{killed}/{total}");
    Ok(killed == total && invalid.is_empty())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The tests, built with the feature; returns their binary.
fn build() -> Result<PathBuf> {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    cargo.args(["test", "--quiet", "-p", "tests", "--features", "mutants", "--test", "it", "--no-run", "--message-format", "json"]);
    let output = cargo.current_dir(root()).stderr(Stdio::inherit()).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut made = messages
        .filter(|message| message["target"]["name"] == "it")
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    made.next_back().context("the tests were not built")
}

/// Where guards are removed, one after another.
struct Bench<'a> {
    args: &'a Args,
    binary: &'a Path,
    /// What is changed, for the tests to read.
    change: PathBuf,
    server: Embedded,
    runtime: tokio::runtime::Runtime,
}

impl<'a> Bench<'a> {
    fn new(args: &'a Args, binary: &'a Path, change: PathBuf) -> Result<Self> {
        let settings = [("max_connections", "300"), ("shared_buffers", "64MB")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let server = Embedded::start(EmbeddedOptions { settings: settings.to_vec(), ..EmbeddedOptions::temporary() })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            run_all(&mut PgConnection::connect(server.url()).await?, "create database checked").await?;
            let url = server.url().replacen("/postgres?", "/checked?", 1);
            run_all(&mut PgConnection::connect(&url).await?, &migrate::print(Store::default())).await
        })?;
        Ok(Self { args, binary, change, server, runtime })
    }

    /// What the tests say without this guard.
    fn remove(&self, statement: &Statement, guard: &Guard) -> Result<Fate> {
        if let (Some(why), false) = (guard.redundant, self.args.redundant) {
            return Ok(Fate::Redundant(why));
        }
        let edits = if guard.from.is_empty() { json!([]) } else { json!([{ "file": statement.file, "from": guard.from, "to": guard.to }]) };
        if !guard.from.is_empty() {
            let original = read(statement.file)?;
            if original.matches(guard.from).count() != 1 {
                return Ok(Fate::Invalid("it does not stand in the file once".to_owned()));
            }
            let without = original.replacen(guard.from, guard.to, 1);
            if !is_migration(statement.file) && parameters(&without) != parameters(&original) {
                return Ok(Fate::Invalid("a parameter is gone, and every call would fail".to_owned()));
            }
            if let Err(error) = self.runtime.block_on(self.check(statement.file, &without)) {
                return Ok(Fate::Invalid(format!("{error:#}")));
            }
        }
        fs::write(&self.change, serde_json::to_string(&edits)?)?;
        let fate = self.test(statement.tests)?;
        self.runtime.block_on(self.clear(statement.file))?;
        Ok(fate)
    }

    /// Runs the tests up to the first that fails twice.
    fn test(&self, filters: &[&str]) -> Result<Fate> {
        let until = Instant::now() + PATIENCE;
        let mut pardoned: HashSet<String> = HashSet::new();
        for filter in filters {
            loop {
                let skip = pardoned.iter().map(String::as_str).chain(SKIPPED).flat_map(|name| ["--skip", name]);
                let arguments: Vec<&str> = filter.split(' ').chain(skip).collect();
                let Some(failed) = self.first_failure(&arguments, until)? else { break };
                if Instant::now() >= until {
                    return Ok(Fate::Late);
                }
                // On a busy machine a test may fail for want of time: only one that fails again has noticed.
                if self.first_failure(&["--exact", &failed], until)?.is_some() {
                    return Ok(Fate::Killed(failed));
                }
                pardoned.insert(failed);
            }
        }
        Ok(Fate::Survived)
    }

    /// Runs the test binary until a test fails; returns which.
    fn first_failure(&self, arguments: &[&str], until: Instant) -> Result<Option<String>> {
        let mut command = Command::new(self.binary);
        command
            .args(arguments)
            .args(["--test-threads", "3"])
            .current_dir(root().join("tests"))
            .env("QUEUE_MUTANTS", &self.change)
            .env("QUEUE_TEST_DATABASE_URL", self.server.url())
            .env("PROPTEST_CASES", self.args.sequences.to_string())
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        let mut tests = command.spawn()?;
        let group = tests.id();
        let output = tests.stdout.take().context("the tests have an output")?;
        let (line, lines) = mpsc::channel();
        let reader =
            std::thread::spawn(move || BufReader::new(output).lines().map_while(Result::ok).for_each(|text| drop(line.send(text))));
        let mut failed = None;
        loop {
            match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(text) => {
                    let test = text.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "));
                    if let Some((name, "FAILED")) = test {
                        failed = Some(name.to_owned());
                        break;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    failed = Some("a test that never ends".to_owned());
                    break;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        // With the processes that tests have started.
        let _ = Command::new("kill").args(["-9", "--", &format!("-{group}")]).stderr(Stdio::null()).status();
        let status = tests.wait()?;
        let _ = reader.join();
        if failed.is_none() && !status.success() {
            bail!("the tests ended with {status} and named none that failed: {arguments:?}");
        }
        Ok(failed)
    }

    /// Whether the statement is still one: prepared, or for a migration applied and its functions called.
    async fn check(&self, file: &str, text: &str) -> Result<()> {
        let url = self.server.url().replacen("/postgres?", "/checked?", 1);
        if !is_migration(file) {
            return run_all(&mut PgConnection::connect(&url).await?, &format!("prepare without_it as {text}")).await;
        }
        let (fresh, original) = (migrate::print(Store::default()), read(file)?);
        if !fresh.contains(&original) {
            bail!("{file} is no part of a fresh store");
        }
        let mut on = PgConnection::connect(&url).await?;
        run_all(&mut on, "drop schema queue cascade").await?;
        let applied = run_all(&mut on, &fresh.replacen(&original, text, 1)).await;
        let outcome = match applied {
            Ok(()) => run_all(&mut on, CALLS).await,
            failed => failed,
        };
        run_all(&mut on, &format!("rollback; drop schema if exists queue cascade; {fresh}")).await?;
        outcome
    }

    /// Drops what tests have left that were not let finish.
    async fn clear(&self, file: &str) -> Result<()> {
        let mut admin = PgConnection::connect(self.server.url()).await?;
        // The template of another schema is of no more use.
        let left = "select datname::text from pg_database where datname like 't\\_%' or datname like 'queue\\_template%' and $1";
        let left = sqlx::query_scalar::<_, String>(left).bind(is_migration(file)).fetch_all(&mut admin).await?;
        for name in left.iter().filter(|_| left.len() > MANY) {
            run_all(&mut admin, &format!("drop database {name} with (force)")).await?;
        }
        Ok(())
    }
}

async fn run_all(on: &mut PgConnection, text: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(on).await?;
    Ok(())
}

/// The eight days of a fresh store are gone before those ahead are made.
const CALLS: &str = "select queue.drop_day('-30 days') from generate_series(1, 8); select queue.add_days(9);
  select queue.enqueue('do', '{}'), queue.enqueue('do', '{}', '{\"after\": \"1 hour\"}'), queue.wake('default'),
    queue.meet_lane('default', 'do', 7::smallint, true); select queue.drop_day('-2 days');
  select queue.enqueue_with('do', '{}', jsonb_build_object('key', 'a', 'unique_key', k::text)),
    queue.try_enqueue('do', '{}', '{\"key\": \"a\"}') from generate_series(1, 2) k;
  select queue.unblock(0, 9), queue.forget_keys(9), queue.cancel_waiting_all('{}'), queue.cancel_running_all('{}'), queue.run_now_all('{}'),
    queue.reschedule_all('{}', now()), queue.set_priority_all('{}', 7), queue.requeue_all('{}'), queue.discard_all('{}'), queue.reopen(7)";

/// The numbers of the parameters of a statement, without its header.
fn parameters(text: &str) -> BTreeSet<u32> {
    let code = text.lines().filter(|line| !line.starts_with("--")).flat_map(|line| line.split('$').skip(1));
    code.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).collect()
}

fn is_migration(file: &str) -> bool {
    root().join("queue-core/migrations").join(file).exists()
}

fn read(file: &str) -> Result<String> {
    let folders = ["queue-worker/sql", "queue-core/sql", "queue-core/migrations"];
    let found = folders.iter().find_map(|folder| fs::read_to_string(root().join(folder).join(file)).ok());
    found.with_context(|| format!("there is no statement {file}"))
}
