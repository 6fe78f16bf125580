//! Resources used between two points in time: WAL, transactions, changed rows, and CPU time if the server runs on this machine.
//!
//! WAL and the server's CPU time are totals of the whole server, so the server must not serve other clients.

use std::{fs, time::Duration};

use sqlx::PgConnection;

use crate::{BenchError, database::BenchDatabase, report::Record};

/// Process id of the server's postmaster, which is the parent of the other server processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Postmaster(u32);

impl Postmaster {
    /// Returns the postmaster of the server behind the connection, or `None` if the server runs on another machine or its processes are
    /// not visible.
    pub(crate) async fn of(connection: &mut PgConnection) -> sqlx::Result<Option<Self>> {
        const HERE: &str = "select case when inet_server_addr() is not distinct from inet_client_addr() then pg_backend_pid() end";
        let pid: Option<i32> = sqlx::query_scalar(HERE).fetch_one(connection).await?;
        let backend = pid.and_then(|pid| Process::read(pid.unsigned_abs())).filter(|process| process.name.starts_with("postgres"));
        Ok(backend.map(|process| Self(process.parent)))
    }

    /// Returns the CPU time of all server processes, including exited processes.
    fn cpu(self) -> Option<Duration> {
        let own = Process::read(self.0)?;
        let children = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let children = children.filter(|pid| Process::read(*pid).is_some_and(|process| process.parent == self.0));
        Some(own.cpu + own.cpu_of_ended_children + children.filter_map(exact_cpu_of).sum::<Duration>())
    }
}

/// Statistics of a process from `/proc`.
struct Process {
    name: String,
    parent: u32,
    cpu: Duration,
    cpu_of_ended_children: Duration,
}

impl Process {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses the contents of `/proc/<pid>/stat`, which begin with `pid (name) state parent`. The kernel reports the times in hundredths
    /// of a second.
    fn parse(stat: &str) -> Option<Self> {
        let (head, tail) = stat.rsplit_once(") ")?;
        let (_, name) = head.split_once(" (")?;
        let fields: Vec<&str> = tail.split(' ').collect();
        let time = |first: usize| -> Option<Duration> {
            let ticks: u64 = fields.get(first)?.parse::<u64>().ok()? + fields.get(first + 1)?.parse::<u64>().ok()?;
            Some(Duration::from_millis(10 * ticks))
        };
        Some(Self { name: name.to_owned(), parent: fields.get(1)?.parse().ok()?, cpu: time(11)?, cpu_of_ended_children: time(13)? })
    }
}

/// Returns the CPU time of one process.
pub(crate) fn cpu_of(pid: u32) -> Option<Duration> {
    Process::read(pid).map(|process| process.cpu)
}

/// Returns the CPU time of a process, with nanosecond resolution if the kernel reports it. Covers only the main thread, because server
/// processes are single-threaded.
pub(crate) fn exact_cpu_of(pid: u32) -> Option<Duration> {
    let exact = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok();
    let exact = exact.and_then(|text| text.split(' ').next()?.parse().ok()).map(Duration::from_nanos);
    exact.filter(|time| !time.is_zero()).or_else(|| cpu_of(pid))
}

/// Resource counters at one point in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    wal: i64,
    transactions: i64,
    dead: i64,
    server: Option<Duration>,
    bench: Option<Duration>,
}

const MOMENT: &str = "
select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint as wal,
  (select xact_commit + xact_rollback from pg_stat_database where datname = current_database()) as transactions,
  (select coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint from pg_stat_user_tables) as dead";

impl Moment {
    /// Reads the current counters.
    pub(crate) async fn now(database: &BenchDatabase) -> Result<Self, BenchError> {
        let (wal, transactions, dead) = sqlx::query_as(MOMENT).fetch_one(database.pool()).await?;
        let server = database.postmaster.and_then(Postmaster::cpu);
        Ok(Self { wal, transactions, dead, server, bench: cpu_of(std::process::id()) })
    }

    /// Returns the resources used since this point in time.
    pub(crate) async fn cost(self, database: &BenchDatabase) -> Result<Cost, BenchError> {
        let now = Self::now(database).await?;
        let between = |before: Option<Duration>, after: Option<Duration>| Some(after?.saturating_sub(before?));
        Ok(Cost {
            wal: (now.wal - self.wal) as f64,
            transactions: (now.transactions - self.transactions) as f64,
            dead: (now.dead - self.dead) as f64,
            server: between(self.server, now.server),
            client: between(self.bench, now.bench),
        })
    }
}

/// Resources used by a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Amount of WAL in bytes.
    pub(crate) wal: f64,
    pub(crate) transactions: f64,
    /// Number of row versions that were updated or deleted.
    pub(crate) dead: f64,
    pub(crate) server: Option<Duration>,
    /// CPU time of the benchmark's own producers or of the worker.
    pub(crate) client: Option<Duration>,
}

impl Cost {
    /// Returns the sum of two costs.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let sum = |one: Option<Duration>, two: Option<Duration>| Some(one? + two?);
        Self {
            wal: self.wal + other.wal,
            transactions: self.transactions + other.transactions,
            dead: self.dead + other.dead,
            server: sum(self.server, other.server),
            client: sum(self.client, other.client),
        }
    }
}

/// Returns the costs per job as result records.
pub(crate) fn per_job(workload: &'static str, variant: &str, client: &'static str, jobs: u64, costs: &[Cost]) -> Vec<Record> {
    let jobs = jobs as f64;
    let figure = |unit, of: &dyn Fn(&Cost) -> Option<f64>| {
        let runs: Vec<f64> = costs.iter().filter_map(of).map(|value| value / jobs).collect();
        (!runs.is_empty()).then(|| Record::new(workload, variant, unit, runs))
    };
    let micros = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e6);
    [
        figure("WAL B/job", &|cost| Some(cost.wal)),
        figure("server us/job", &|cost| micros(cost.server)),
        figure(client, &|cost| micros(cost.client)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_hold_anything() {
        let stat = "42 (a ) (b) S 7 0 0 0 0 0 0 0 0 0 100 50 3 2 20 0 1 0 1";
        let process = Process::parse(stat).unwrap();
        assert_eq!((process.name.as_str(), process.parent), ("a ) (b", 7));
        assert_eq!((process.cpu, process.cpu_of_ended_children), (Duration::from_millis(1500), Duration::from_millis(50)));
    }
}
