//! Tests CPU saturation without faults: handlers that never await block all threads of the workers. No worker fails, so every recovery is
//! a false recovery.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    check::check,
    history::{self, Line},
    plan::TTL,
    processes::ProcessGroup,
    run::{drain, finals},
    server::TestServer,
};

/// Result of a saturation run. Every violation counts as a false recovery.
#[derive(Debug)]
pub(super) struct Saturation {
    pub(super) false_recoveries: usize,
    pub(super) executions: usize,
    pub(super) notes: Vec<String>,
}

/// Enqueued jobs and lease duration of a saturation run.
#[derive(Debug)]
pub(super) struct Load {
    /// Time during which jobs with short handlers are enqueued.
    pub(super) span: Duration,
    /// Number of initial jobs whose handler blocks its thread for longer than a lease.
    pub(super) long: i64,
    pub(super) long_ms: i64,
    pub(super) ttl: Duration,
}

impl Default for Load {
    fn default() -> Self {
        Self { span: Duration::ZERO, long: 1, long_ms: 7000, ttl: TTL }
    }
}

impl Load {
    /// Returns a load with a short lease, and with enough handlers to block all threads for longer than this lease.
    pub(super) fn short() -> Self {
        Self { span: Duration::from_secs(1), long: 8, long_ms: 3000, ttl: Duration::from_secs(2) }
    }
}

/// Runs the saturation test with two workers. Each worker has two threads and four slots. The test ends early after the first recovery.
pub(super) async fn saturate(server: &TestServer, folder: &Path, name: &str, load: &Load) -> Result<Saturation> {
    const RECOVERED: &str = "select count(*) from queue.failure";
    const ENQUEUE: &str = "select queue.enqueue('chaos',
         jsonb_build_object('n', n, 'ms', case when n <= $2 then $3 else 50 + n * 37 % 300 end, 'act', 'Spin'), '{\"queue\": \"chaos\"}')
       from generate_series($1 + 1, $1 + 20) n";
    let database = server.database(name).await?;
    let ttl = load.ttl.as_millis().to_string();
    let processes = ProcessGroup::new(server, &database, folder, 2).await?;
    let processes = processes.with(&[("CHAOS_CONCURRENCY", "4"), ("CHAOS_THREADS", "2"), ("CHAOS_TTL_MS", ttl.as_str())]);
    processes.start_all()?;
    let (began, mut n, mut drained) = (Instant::now(), 0_i64, false);
    while !drained && began.elapsed() < load.span + Duration::from_mins(1) && database.count(RECOVERED).await? == 0 {
        if began.elapsed() >= load.span {
            drained = drain(&database, Duration::from_millis(200)).await?;
        } else if database.count("select count(*) from queue.ready").await? <= 20 {
            sqlx::query(ENQUEUE).bind(n).bind(load.long).bind(load.long_ms).execute(&database.pool).await?;
            n += 20;
        } else {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    processes.stop_all();
    let recovered = database.count(RECOVERED).await? as usize;
    if recovered > 0 {
        return Ok(Saturation { false_recoveries: recovered, executions: 0, notes: vec![format!("{recovered} false recoveries")] });
    }
    let mut entries = history::read(folder)?;
    // The check requires the history of a producer. This process is the only producer, and all its enqueues were acknowledged.
    let acked = (1..=n.cast_unsigned()).flat_map(|n| [Line::Attempted(n), Line::Acked(n)]);
    entries.splice(0..0, acked.map(|line| history::Entry { at: 0, who: String::new(), line }));
    let found = check(&entries, &[], &finals(&database).await?);
    let wrong = found.faults() + usize::from(!drained);
    Ok(Saturation { false_recoveries: wrong, executions: found.executions, notes: found.notes })
}

impl Saturation {
    /// Returns one report per violation.
    pub(super) fn reports(&self) -> Vec<String> {
        (0..self.false_recoveries).map(|i| self.notes.get(i).cloned().unwrap_or_else(|| "false recovery".to_owned())).collect()
    }
}
