//! Runs a chaos test: a phase with faults, then a drain without faults, then the checks.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::{Value, json};

use super::{
    check::{FinalState, check},
    durable::{self, DurableFindings, DurableScale, FleetResult},
    history,
    inject::{Fault, Injector, count},
    limited,
    plan::{Scale, TTL, plan},
    processes::ProcessGroup,
    proxy::Proxy,
    recoveries,
    saturate::{Load, saturate},
    server::{Database, TestServer},
    ticks::{self, TickCounts},
    zombies,
};
use crate::target;

/// Maximum time without progress during a drain without faults.
const DRAIN: Duration = Duration::from_secs(30);

/// Target for the 99th percentile of the recovery times: the lease duration plus two seconds.
const RECOVERED_WITHIN_MS: u64 = TTL.as_millis() as u64 + 2000;

/// Executes a run. Returns whether the queue drained, no process failed, no violation was found, and all planned faults were injected. A
/// full run must also meet the target for recovery times. Prints one JSON object as the last line.
pub(super) async fn run(seed: u64, scale: &Scale, quick: bool) -> Result<bool> {
    let began = Instant::now();
    let folder = results(&format!("seed-{seed}"))?;
    println!("seed {seed}; histories in {}", folder.display());
    let server = TestServer::start().await?;
    let database = server.database("chaos").await?;
    let hurt = run_fault_phase(&server, &database, &folder, seed, scale).await?;
    print_progress(began, &format!("{} faults injected, {}", hurt.faults.len(), if hurt.drained { "drained" } else { "NOT drained" }));
    let entries = history::read(&folder)?;
    let found = check(&entries, &hurt.faults, &finals(&database).await?);
    let violations = limited::check(&entries, &hurt.faults);
    // A limit may delay the next start of a recovered job, so recovery times are not measured in limited queues.
    let free: Vec<_> = entries.iter().filter(|entry| !limited::is_limited(entry.line.number())).cloned().collect();
    let recoveries = recoveries::measure(&free, &hurt.faults);
    let broken = broken(&database).await?;
    let effects = effects(&database).await?;
    let crashed = database.count("select count(*) from queue.failure where error like 'the process ended%'").await?;
    let undead = zombies::run_zombies(&server, &server.database("zombies").await?, scale.zombies).await?;
    print_progress(began, &format!("{} zombies attempted writes", scale.zombies));
    let load = Load { span: scale.saturation, long: if quick { 1 } else { 8 }, ..Load::default() };
    let saturation = saturate(&server, &folder.join("saturation"), "saturation", &load).await?;

    let size = if quick { DurableScale::quick() } else { DurableScale::full() };
    let durable = durable::run(&server, &folder.join("durable"), seed, &size).await?;
    print_progress(began, &format!("{} durable jobs, {} faults", size.parents, durable.faults.len()));
    let fleet = durable::fleet(&server, &folder.join("fleet"), if quick { 200 } else { 10_000 }).await?;
    print_progress(began, &format!("{} durable jobs slept while all workers were killed", fleet.asleep));

    let notes = found.notes.iter().chain(&undead.notes).chain(&saturation.notes).chain(&violations.notes);
    for note in notes.chain(&durable.notes).chain(&fleet.account.notes) {
        println!("  {note}");
    }
    let injected = count(&hurt.faults);
    let fewer = scale.faults.iter().any(|(kind, planned)| injected.get(kind).copied().unwrap_or(0) < *planned);
    let slow = recoveries.p99_ms > RECOVERED_WITHIN_MS;
    let wrong = found.faults()
        + broken
        + effects.duplicate
        + effects.missing
        + undead.accepted
        + saturation.false_recoveries
        + violations.concurrency
        + violations.rate
        + hurt.ticks.wrong()
        + durable.wrong()
        + fleet.account.wrong();
    let fewer = fewer || durable.faults.len() < planned_fault_count(&size);
    let passed = wrong + hurt.ended == 0 && hurt.drained && !fewer && (quick || !slow);
    let mut report = json!({
        "seed": seed, "passed": passed, "seconds": began.elapsed().as_secs(), "drained": hurt.drained, "invariant_broken": broken,
        "stale_writes_accepted": undead.accepted, "stale_writes_rejected": undead.tried - undead.accepted,
        "effects": effects.rows, "duplicate_effects": effects.duplicate, "missing_effects": effects.missing, "recovered_attempts": crashed,
        "recovery_p50_ms": recoveries.p50_ms, "recovery_p99_ms": recoveries.p99_ms, "recovery_max_ms": recoveries.max_ms,
        "recoveries": recoveries.count, "recoveries_with_outage": recoveries.count_with_outage,
        "recovery_with_outage_max_ms": recoveries.max_with_outage_ms, "recovery_within_goal": !slow,
        "false_recoveries": saturation.false_recoveries, "saturated_executions": saturation.executions,
        "over_concurrency": violations.concurrency, "over_rate": violations.rate, "begun_under_limits": violations.begun,
        "processes_ended": hurt.ended, "faults": injected, "fewer_faults_than_asked": fewer,
    });
    merge(&mut report, serde_json::to_value(&found)?);
    merge(&mut report, serde_json::to_value(hurt.ticks)?);
    merge(&mut report, of_durable(&durable)?);
    merge(&mut report, of_fleet(&fleet)?);
    println!("{report}");
    Ok(passed)
}

/// Runs only the test of durable jobs.
pub(super) async fn durable(seed: u64, quick: bool) -> Result<bool> {
    let (began, folder) = (Instant::now(), results(&format!("durable-{seed}"))?);
    println!("seed {seed}; histories in {}", folder.display());
    let size = if quick { DurableScale::quick() } else { DurableScale::full() };
    let durable = durable::run(&TestServer::start().await?, &folder, seed, &size).await?;
    durable.notes.iter().for_each(|note| println!("  {note}"));
    let passed = durable.wrong() == 0 && durable.faults.len() >= planned_fault_count(&size);
    let mut report = json!({ "seed": seed, "passed": passed, "seconds": began.elapsed().as_secs() });
    merge(&mut report, of_durable(&durable)?);
    println!("{report}");
    Ok(passed)
}

/// Runs only the deployment test with sleeping durable jobs.
pub(super) async fn fleet(jobs: u64) -> Result<bool> {
    let fleet = durable::fleet(&TestServer::start().await?, &results("fleet")?, jobs).await?;
    fleet.account.notes.iter().for_each(|note| println!("  {note}"));
    let passed = fleet.account.wrong() == 0;
    let mut report = json!({ "passed": passed, "jobs": jobs });
    merge(&mut report, of_fleet(&fleet)?);
    println!("{report}");
    Ok(passed)
}

fn planned_fault_count(size: &DurableScale) -> usize {
    size.faults.iter().map(|(_, count)| count).sum()
}

fn of_durable(durable: &DurableFindings) -> Result<Value> {
    let mut report = serde_json::to_value(durable)?;
    report["durable_faults"] = serde_json::to_value(count(&durable.faults))?;
    Ok(report)
}

/// Returns the JSON report of a deployment test.
fn of_fleet(fleet: &FleetResult) -> Result<Value> {
    let account = serde_json::to_value(&fleet.account)?;
    let of = |key: &str| account[key].clone();
    Ok(json!({
        "fleet_asleep": fleet.asleep, "fleet_seconds": fleet.seconds, "fleet_completed": of("durable_completed"),
        "fleet_steps": of("durable_steps"), "fleet_repeats": of("durable_repeats"), "fleet_wrong": fleet.account.wrong(),
    }))
}

/// Injected faults and outcome of the phase with faults.
struct FaultPhase {
    faults: Vec<Fault>,
    drained: bool,
    /// Number of processes that exited without being killed, plus the number of failed producers.
    ended: usize,
    ticks: TickCounts,
}

/// Injects faults while jobs run, then waits without faults until the queue is empty.
async fn run_fault_phase(server: &TestServer, database: &Database, folder: &Path, seed: u64, scale: &Scale) -> Result<FaultPhase> {
    limited::set(database).await?;
    let injector = processes(server, database, folder, scale).await?;
    let mut producers = Vec::new();
    for (slot, proxy) in injector.producers.iter().enumerate() {
        let jobs = scale.jobs / scale.producers as u64;
        producers.push(injector.processes.produce(proxy, slot, jobs, scale.span, seed)?);
    }
    let faults = injector.run(&plan(seed, scale.span, &scale.faults)).await?;
    injector.clear_proxies();
    let mut ended = injector.processes.reap();
    for mut producer in producers {
        ended += usize::from(tokio::task::spawn_blocking(move || producer.wait()).await? != Some(0));
    }
    injector.processes.start_all()?;
    let ticks = ticks::account(database).await?;
    let drained = drain(database, DRAIN).await?;
    injector.processes.stop_all();
    Ok(FaultPhase { faults, drained, ended, ticks })
}

async fn processes(server: &TestServer, database: &Database, folder: &Path, scale: &Scale) -> Result<Arc<Injector>> {
    let processes = ProcessGroup::new(server, database, folder, scale.workers).await?.with(&[("CHAOS_DECLARES", "true")]);
    ticks::make(database, scale.schedules).await?;
    let mut producers = Vec::new();
    for _ in 0..scale.producers {
        producers.push(Proxy::start(server.port()).await?);
    }
    processes.start_all()?;
    Ok(Arc::new(Injector::new(processes, producers, &folder.join("faults.jsonl"))?))
}

/// Creates an empty directory for the artifacts of a run.
pub(super) fn results(name: &str) -> Result<PathBuf> {
    let folder = target().join("chaos").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder.canonicalize()?)
}

/// Query for the number of unfinished jobs.
pub(super) const LEFT: &str = "select (select count(*) from queue.ready) + (select count(*) from queue.scheduled)
   + (select count(*) from queue.blocked) + (select count(*) from queue.parked) + (select coalesce(sum(cardinality(ids)), 0)::bigint from queue.lease)";

/// Waits until all jobs have finished. Returns `false` if the number of unfinished jobs does not decrease for `patience`.
pub(super) async fn drain(database: &Database, patience: Duration) -> Result<bool> {
    let (mut least, mut until) = (i64::MAX, Instant::now() + patience);
    loop {
        let left = database.count(LEFT).await?;
        if left == 0 {
            return Ok(true);
        }
        if left < least {
            (least, until) = (left, Instant::now() + patience);
        }
        if Instant::now() > until {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the final state of each job.
pub(super) async fn finals(database: &Database) -> Result<Vec<FinalState>> {
    const FINALS: &str =
        "select (j.payload->>'n')::bigint as n, coalesce(j.payload->>'act' = 'Poison', false) as poison,
         (extract(epoch from (j.system->>'expires_at')::timestamptz) * 1000000)::bigint as expires_at, coalesce(e.state, 'nowhere') as state, coalesce(e.attempts, 0) as attempts,
         e.output, e.error, coalesce((extract(epoch from e.at) * 1000000)::bigint, 0) as at
       from queue.job j
       left join (
         select id, case when expired then 'expired' when cancelled then 'cancelled' else 'completed' end as state, attempts::int, output #>> '{}' as output,
           null as error, finished_at as at
         from queue.done
         union all select unnest(ids), 'completed', 1, null, null, finished_at from queue.done_many
         union all select id, 'dead', attempts, null, error, died_at from queue.dead
         union all select id, 'ready', attempts, null, null, null from queue.ready
         union all select id, 'scheduled', attempts, null, null, null from queue.scheduled
         union all select id, 'blocked', 0, null, null, null from queue.blocked
         union all select id, 'parked', attempts, null, null, null from queue.parked
         union all select unnest(ids), 'running', 0, null, null, null from queue.lease
       ) e on e.id = j.id
       where j.payload ? 'n'";
    Ok(sqlx::query_as(FINALS).fetch_all(&database.pool).await?)
}

/// Returns the number of violations that `tests::INVARIANT` finds, such as a job without exactly one entry in the tables of job states.
pub(super) async fn broken(database: &Database) -> Result<usize> {
    let broken: Vec<(i64, i64, i64)> = sqlx::query_as(tests::INVARIANT).fetch_all(&database.pool).await?;
    Ok(broken.len())
}

/// Result of comparing the ledger with the completed jobs.
pub(super) struct Effects {
    rows: i64,
    pub(super) duplicate: usize,
    /// Number of completed jobs whose effect is missing.
    pub(super) missing: usize,
}

pub(super) async fn effects(database: &Database) -> Result<Effects> {
    const MISSING: &str = "select count(*) from queue.job j
       where j.payload->>'act' = 'Enter' and (j.payload->>'n')::bigint not in (select n from ledger)
         and j.id not in (select id from queue.dead union all select id from queue.ready union all select id from queue.done where expired)";
    let rows = database.count("select count(*) from ledger").await?;
    let distinct = database.count("select count(distinct n) from ledger").await?;
    Ok(Effects { rows, duplicate: (rows - distinct) as usize, missing: database.count(MISSING).await? as usize })
}

fn print_progress(began: Instant, what: &str) {
    println!("{:>4}s  {what}", began.elapsed().as_secs());
}

fn merge(report: &mut Value, more: Value) {
    if let (Some(report), Value::Object(more)) = (report.as_object_mut(), more) {
        report.extend(more);
    }
}
