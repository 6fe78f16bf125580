//! Tests open transactions that lock one table at a time: its rows, or the whole table as `create index` does. Jobs that do not need the
//! locked table continue, and all other jobs continue once the lock is released. If a job waits, the log names the table, the session and
//! a job.

mod busy;

use std::{
    collections::HashMap,
    io,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use queue_core::{Context, Failure, Handler, Job as _, JobId, JobResult, durable::Durable, flow::Flow, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool};
use tests::TestDb;
use tokio::sync::Semaphore;
use tracing::level_filters::LevelFilter;

/// Gates by name. A gate's name contains the name of the test's database.
static GATES: LazyLock<Mutex<HashMap<String, Arc<Semaphore>>>> = LazyLock::new(Mutex::default);

pub(crate) fn gate(name: &str) -> Arc<Semaphore> {
    Arc::clone(GATES.lock().unwrap().entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(0))))
}

/// Gate of a job, and the outcome of the job once the gate is open.
#[derive(Clone, Serialize, Deserialize)]
struct Of {
    gate: String,
    fails: bool,
}

impl Of {
    async fn end(&self) -> JobResult {
        gate(&self.gate).acquire().await.unwrap().forget();
        if self.fails { Err(Failure::terminal("as told")) } else { Ok(()) }
    }
}

macro_rules! jobs {
    ($($name:ident($($option:tt)*);)*) => {
        $(
            #[job($($option)*)]
            #[derive(Clone, Serialize, Deserialize)]
            struct $name(Of);

            impl Handler for $name {
                async fn run(self, _: &Context) -> JobResult {
                    self.0.end().await
                }
            }
        )*
    };
}

jobs! {
    Plain(name = "locked_plain");
    Other(name = "locked_other");
    Keyed(name = "locked_keyed", key = self.0.gate);
    Limited(name = "locked_limited", limit(concurrency = 5));
    OfKey(name = "locked_of_key", limit(key = self.0.gate, concurrency = 5));
    Fair(name = "locked_fair", fair = self.0.gate);
    Brief(name = "locked_brief", retain = "none");
    Expiring(name = "locked_expiring", expires = "1h");
    Child(name = "locked_child");
}

#[job(name = "locked_reporting", output = String)]
#[derive(Clone, Serialize, Deserialize)]
struct Reporting(Of);

impl Handler for Reporting {
    async fn run(self, cx: &Context) -> JobResult<String> {
        cx.progress(0.5);
        self.0.end().await?;
        Ok("reported".to_owned())
    }
}

#[job(name = "locked_parent", durable)]
#[derive(Clone, Serialize, Deserialize)]
struct Parent(Of);

impl Handler for Parent {
    async fn run(self, cx: &Durable) -> JobResult {
        let child = cx.spawn("child", Child(self.0.clone())).await?;
        child.join().await?;
        Ok(())
    }
}

/// Durable job that dies while its child is running.
#[job(name = "locked_fallen", durable)]
#[derive(Clone, Serialize, Deserialize)]
struct Fallen(Of);

impl Handler for Fallen {
    async fn run(self, cx: &Durable) -> JobResult {
        cx.spawn("child", Child(self.0.clone())).await?;
        Err(Failure::terminal("as told"))
    }
}

#[job(name = "locked_mapper", durable)]
#[derive(Clone, Serialize, Deserialize)]
struct Mapper(Of);

impl Handler for Mapper {
    async fn run(self, cx: &Durable) -> JobResult {
        let parts = cx.map("parts", (0..3).map(move |_| Child(self.0.clone()))).await?;
        parts.join().await?;
        Ok(())
    }
}

#[job(name = "locked_steps", durable)]
#[derive(Clone, Serialize, Deserialize)]
struct Steps(Of);

impl Handler for Steps {
    async fn run(self, cx: &Durable) -> JobResult {
        let of = self.0.clone();
        cx.step("one", async { of.end().await.map_err(|_| std::io::Error::other("told")) }).await?;
        Ok(())
    }
}

/// Job whose first attempt fails. The job is deleted when it completes.
#[job(name = "locked_again", retain = "none")]
#[derive(Clone, Serialize, Deserialize)]
struct Again(Of);

impl Handler for Again {
    async fn run(self, cx: &Context) -> JobResult {
        if cx.attempt() == 1 {
            return Err(Failure::retry_in(Duration::from_millis(1), "once"));
        }
        self.0.end().await
    }
}

/// Durable job that restarts once.
#[job(name = "locked_anew", durable)]
#[derive(Clone, Serialize, Deserialize)]
struct Restarting {
    of: Of,
    is_last: bool,
}

impl Handler for Restarting {
    async fn run(self, cx: &Durable) -> JobResult {
        if !self.is_last {
            self.of.end().await?;
            cx.restart(Self { is_last: true, ..self }).await;
        }
        Ok(())
    }
}

pub(crate) fn worker(pool: &PgPool) -> Worker {
    Worker::new(pool.clone())
        .queue("default", 50)
        .register::<Plain>()
        .register::<Other>()
        .register::<Keyed>()
        .register::<Limited>()
        .register::<OfKey>()
        .register::<Fair>()
        .register::<Brief>()
        .register::<Expiring>()
        .register::<Child>()
        .register::<Reporting>()
        .register::<Parent>()
        .register::<Fallen>()
        .register::<Mapper>()
        .register::<Steps>()
        .register::<Again>()
        .register::<Restarting>()
}

/// Jobs of one test.
pub(crate) struct Jobs {
    /// Jobs of every kind, which end once the first gate is open.
    pub(crate) all: Vec<JobId>,
    /// Independent jobs, which finish once the test opens the second gate.
    pub(crate) others: Vec<JobId>,
    /// The job in `all` that dies while its child is still running.
    pub(crate) fallen: JobId,
}

/// Query that returns [`ALL_BEGUN`] once all jobs have begun: the number of claimed jobs and failures, plus 100 per parked job and 1000 per
/// dead job.
pub(crate) const BEGUN: &str = "select (select count(*) from queue.lease l, unnest(l.ids)) + (select count(*) from queue.failure)
    + 100 * (select count(*) from queue.parked) + 1000 * (select count(*) from queue.dead)";
pub(crate) const ALL_BEGUN: i64 = 24 + 300 + 1000;

/// Enqueues a flow of two nodes. The second node waits for the first.
async fn enqueue_flow(pool: &PgPool, of: Of) -> Vec<JobId> {
    let mut flow = Flow::new("flow");
    let before = flow.add("before", Child(of.clone()));
    flow.add("after", Plain(of)).after(&before);
    let mut tx = pool.begin().await.unwrap();
    let flow = flow.enqueue(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    flow.jobs().map(|(_, job)| job).collect()
}

pub(crate) async fn enqueue(pool: &PgPool, first: &str, second: &str) -> Jobs {
    let of = || Of { gate: first.to_owned(), fails: false };
    let mut all = Vec::new();
    macro_rules! put {
        ($($job:expr),* $(,)?) => { $(all.push($job.enqueue(pool).await.unwrap().id());)* };
    }
    put!(Keyed(of()), Limited(of()), OfKey(of()), Fair(of()), Brief(of()), Expiring(of()), Reporting(of()), Parent(of()), Mapper(of()));
    put!(Keyed(of()), Again(of()), Restarting { of: of(), is_last: false });
    put!(Steps(of()), Plain(Of { fails: true, ..of() }), Plain(of()));
    let fallen = Fallen(of()).enqueue(pool).await.unwrap().id();
    all.extend(enqueue_flow(pool, of()).await);
    let of = || Of { gate: second.to_owned(), fails: false };
    let mut others = vec![Reporting(of()).enqueue(pool).await.unwrap().id()];
    for _ in 0..3 {
        others.push(Other(of()).enqueue(pool).await.unwrap().id());
    }
    Jobs { all, others, fallen }
}

/// Counts the jobs that have not finished.
async fn count_left(pool: &PgPool, jobs: &[JobId]) -> i64 {
    let left = "select count(*) from unnest($1::bigint[]) j (id) where queue.state_of(j.id) not in ('completed', 'dead')";
    sqlx::query_scalar(left).bind(jobs).fetch_one(pool).await.unwrap()
}

/// Waits up to half a minute until the jobs have finished. Returns the number of unfinished jobs.
pub(crate) async fn left(pool: &PgPool, jobs: &[JobId]) -> i64 {
    for _ in 0..600 {
        if count_left(pool, jobs).await == 0 {
            return 0;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    count_left(pool, jobs).await
}

/// Log writer that collects the warnings of all workers in this process as JSON lines. It is installed for the whole process, because the
/// workers' loops run on their own threads.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<u8>>>);

impl io::Write for Warnings {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Warnings {
    fn collect() -> Self {
        let warnings = Self::default();
        let to = warnings.clone();
        let lines = tracing_subscriber::fmt().json().with_max_level(LevelFilter::WARN).with_writer(move || to.clone()).finish();
        tracing::subscriber::set_global_default(lines).expect("it needs a process of its own");
        warnings
    }

    /// Returns the table and the job of the first warning whose field `name` has this value.
    fn with(&self, name: &str, value: impl Into<Value>) -> Option<(String, String)> {
        let value = value.into();
        let printed = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let mut lines = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let line = lines.find(|line| line["fields"][name] == value)?;
        let text = |name: &str| line["fields"][name].as_str().unwrap_or_default().to_owned();
        Some((text("table"), text("job")))
    }
}

/// Tables without which no verdict can be written. `settle.sql` is one statement for every outcome. Before a statement begins, the server
/// locks all tables that the statement writes. While one of these tables is locked as a whole, all verdicts wait.
const OF_ALL: [(&str, &str); 9] = [
    ("lease", "a verdict takes its job out of its lease"),
    ("done", "jobs that completed with an output or after a failure, and those that were cancelled"),
    ("done_many", "jobs that completed immediately and reported nothing"),
    ("dead", "dead letters"),
    ("failure", "why an attempt failed"),
    ("ready", "jobs that are given back"),
    ("scheduled", "jobs that are tried again or put off"),
    ("active_key", "the end of the first job of an ordering key"),
    ("key_hint", "that the ordering key of a job that ended may go on"),
];

/// Returns whether `settle.sql` writes the table. Panics if [`OF_ALL`] disagrees.
fn is_of_all(table: &str) -> bool {
    let settle = include_str!("../../queue-worker/sql/settle.sql");
    let writes = ["insert into", "delete from", "update"]
        .iter()
        .any(|how| settle.split(&format!("{how} queue.{table}")).skip(1).any(|rest| rest.starts_with(|next: char| next.is_whitespace())));
    assert_eq!(writes, OF_ALL.iter().any(|(of_all, _)| *of_all == table), "{table}");
    writes
}

/// Returns a statement that locks the rows of the table, except the rows of the jobs `others`.
async fn lock_rows(on: &mut PgConnection, table: &str, others: &[JobId]) -> String {
    let column = "select a.attname::text from pg_attribute a where a.attrelid = ('queue.' || $1)::regclass and a.attname in ('id', 'ids')";
    let column: Option<String> = sqlx::query_scalar(column).bind(table).fetch_optional(on).await.unwrap();
    let others = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    match column.as_deref() {
        Some("id") => format!("select from queue.{table} t where t.id::text <> all (array[{others}]::text[]) for update"),
        Some(_) => format!("select from queue.{table} t where not t.ids && array[{others}]::bigint[] for update"),
        None => format!("select from queue.{table} for update"),
    }
}

/// Returns whether `part` is the default partition or a day partition of `table`.
fn is_part(part: &str, table: &str) -> bool {
    let end = part.strip_prefix(table).and_then(|rest| rest.strip_prefix('_'));
    end.is_some_and(|end| end == "default" || end.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the faults. A fault is a job of `others` that waits, or a wait without a warning that names the table, the session and a job.
async fn faults(db: &TestDb, table: &str, is_of_all: bool, jobs: &Jobs, warned: impl Fn() -> Option<(String, String)>) -> Vec<String> {
    let mut faults = Vec::new();
    let stopped = if is_of_all { 0 } else { left(&db.pool, &jobs.others).await };
    if stopped > 0 {
        faults.push(format!("{stopped} others stopped"));
    }
    for _ in 0..600 {
        if warned().is_some() || count_left(&db.pool, &jobs.all).await == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    match warned() {
        Some((named, job)) if (named == table || is_part(&named, table)) && !job.is_empty() => {}
        Some((named, job)) => faults.push(format!("it warns of {named:?} and of job {job:?}")),
        None => {
            let left = count_left(&db.pool, &jobs.all).await;
            if left > 0 {
                faults.push(format!("{left} jobs wait without a warning"));
            }
        }
    }
    faults
}

/// Locks a table or its rows while jobs of every kind end. Returns the faults, if any.
async fn check(table: &str, is_row: bool, warnings: &Warnings) -> Option<String> {
    let db = TestDb::new().await;
    let name: String = db.one("select current_database()::text").await;
    let (first, second) = (format!("{name} first"), format!("{name} second"));
    let jobs = enqueue(&db.pool, &first, &second).await;
    let test = async {
        db.until_count(BEGUN, ALL_BEGUN).await;
        let mut holder = db.connect().await;
        let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut holder).await.unwrap();
        let mut held = holder.begin().await.unwrap();
        let lock = if is_row { lock_rows(&mut held, table, &jobs.others).await } else { format!("lock table queue.{table} in share mode") };
        held.execute(sqlx::AssertSqlSafe(lock)).await.unwrap();
        gate(&first).add_permits(1000);
        gate(&second).add_permits(1000);
        let mut faults = faults(&db, table, !is_row && is_of_all(table), &jobs, || warnings.with("pid", pid)).await;
        held.rollback().await.unwrap();
        let lost = left(&db.pool, &jobs.all).await + left(&db.pool, &jobs.others).await;
        if lost > 0 {
            faults.push(format!("{lost} jobs did not end once it was free"));
        }
        faults
    };
    let faults = db.run_while(worker(&db.pool), test).await;
    db.finish().await;
    let what = if is_row { "rows" } else { "the table" };
    (!faults.is_empty()).then(|| format!("{table}, {what}: {}", faults.join("; ")))
}

#[tokio::test]
#[ignore = "deep"]
async fn a_lock_in_one_table_stops_no_unrelated_job() {
    let db = TestDb::new().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "select c.relname::text from pg_class c where c.relnamespace = 'queue'::regnamespace and c.relkind in ('r', 'p')
        and not c.relispartition order by 1",
    )
    .fetch_all(&db.pool)
    .await
    .unwrap();
    db.finish().await;
    let warnings = Warnings::collect();
    let cases = tables.iter().flat_map(|table| [(table, true), (table, false)]);
    let checks = stream::iter(cases).map(|(table, is_row)| check(table, is_row, &warnings));
    let found: Vec<Option<String>> = checks.buffer_unordered(3).collect().await;
    let found: Vec<String> = found.into_iter().flatten().collect();
    assert!(found.is_empty(), "{found:#?}");
}
