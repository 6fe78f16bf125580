//! Long run without faults: memory, open files and connections must not grow, and no job may remain.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::json;

use super::{
    check::check,
    history,
    processes::ProcessGroup,
    proxy::Proxy,
    run::{broken, drain, finals, results},
    server::TestServer,
};

const WORKERS: usize = 2;
const PRODUCERS: usize = 2;

/// Number of jobs enqueued per second.
const RATE: u64 = 100;

/// Sample of the total resource usage of all workers.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    memory_kib: u64,
    files: u64,
    connections: u64,
}

/// Runs the soak test for the duration `span`. Returns true if no resource grew, all jobs finished, and no violation was found. Prints one
/// JSON object as the last line.
pub(super) async fn soak(span: Duration) -> Result<bool> {
    let folder = results("soak")?;
    let server = TestServer::start().await?;
    let database = server.database("soak").await?;
    let processes = ProcessGroup::new(&server, &database, &folder, WORKERS).await?;
    processes.start_all()?;
    let mut producers = Vec::new();
    for slot in 0..PRODUCERS {
        let proxy = Proxy::start(server.port()).await?;
        producers.push(processes.produce(&proxy, slot, RATE * span.as_secs() / PRODUCERS as u64, span, 1)?);
    }
    let until = Instant::now() + span;
    let mut samples = Vec::new();
    while Instant::now() < until {
        tokio::time::sleep((span / 120).max(Duration::from_secs(1))).await;
        let connections = database.count("select count(*) from pg_stat_activity where application_name like 'queue-worker%'").await?;
        let mut sample = Sample { connections: connections.unsigned_abs(), ..Sample::default() };
        for pid in (0..WORKERS).filter_map(|slot| processes.pid(slot)) {
            sample.memory_kib += memory_kib(pid);
            sample.files += fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |files| files.count() as u64);
        }
        samples.push(sample);
    }
    for mut producer in producers {
        tokio::task::spawn_blocking(move || producer.wait()).await?;
    }
    let drained = drain(&database, Duration::from_mins(1)).await?;
    let ended = processes.reap();
    processes.stop_all();
    let found = check(&history::read(&folder)?, &[], &finals(&database).await?);
    let broken = broken(&database).await?;
    // Excludes the first quarter, because caches and pools fill during that time.
    let quarter = samples.len() / 4;
    let (early, late) = (mean(&samples[quarter..2 * quarter]), mean(&samples[3 * quarter..]));
    let flat = late.memory_kib <= early.memory_kib * 115 / 100 + 4096
        && late.files <= early.files + 4
        && late.connections <= early.connections + 2;
    let passed = flat && drained && ended + found.faults() + broken + found.duplicate_executions == 0;
    found.notes.iter().for_each(|note| println!("  {note}"));
    let show = |sample: Sample| json!({ "memory_kib": sample.memory_kib, "files": sample.files, "connections": sample.connections });
    println!(
        "{}",
        json!({
            "passed": passed, "seconds": span.as_secs(), "jobs": found.completed, "lost": found.lost, "unexpected": found.unexpected,
            "duplicate_executions": found.duplicate_executions, "invariant_broken": broken, "drained": drained, "flat": flat,
            "second_quarter": show(early), "last_quarter": show(late),
        })
    );
    Ok(passed)
}

fn memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn mean(samples: &[Sample]) -> Sample {
    let count = (samples.len() as u64).max(1);
    let of = |value: fn(&Sample) -> u64| samples.iter().map(value).sum::<u64>() / count;
    Sample { memory_kib: of(|s| s.memory_kib), files: of(|s| s.files), connections: of(|s| s.connections) }
}
