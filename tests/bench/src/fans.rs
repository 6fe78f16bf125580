//! Workloads F4 to F6: the cost of map parts compared with plain jobs, the cost of counting finished parts, and the cost of waking parked
//! jobs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use queue_core::{Handler, Job as _, JobId, JobResult, JobType, durable::Durable, options::Options};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use tokio::{sync::Notify, task::JoinHandle};

use crate::{
    BenchError, FigureSink, Plan,
    database::{BenchDatabase, Expected},
    drain::{DrainResult, drain},
    job::{Noop, unix_ns},
    measure::{Cost, Moment, per_job},
    process::Shape,
    report::Record,
};

/// Durable job that enqueues a map of `parts` jobs and waits for all of them.
#[derive(Debug, Serialize, Deserialize)]
struct Fan {
    parts: u64,
}

impl JobType for Fan {
    type Output = ();
    type Cx = Durable;
    const OPTIONS: Options = Options::new("bench_fan").queue("bench_fan").durable();
}

/// Time at which the handler of `Fan` had joined all parts, as returned by [`unix_ns`].
static JOINED: AtomicU64 = AtomicU64::new(0);

impl Handler for Fan {
    async fn run(self, cx: &Durable) -> JobResult {
        let ended = cx.map("parts", (0..self.parts).map(Noop::numbered)).await?.join().await?;
        JOINED.store(unix_ns(), Relaxed);
        if ended.completed == self.parts { Ok(()) } else { Err(format!("{ended:?}").into()) }
    }
}

/// Durable job that waits for a signal.
#[derive(Debug, Serialize, Deserialize)]
struct Waits;

impl JobType for Waits {
    type Output = ();
    type Cx = Durable;
    const OPTIONS: Options = Options::new("bench_waits").queue("bench_fan").durable();
}

impl Handler for Waits {
    async fn run(self, cx: &Durable) -> JobResult {
        cx.receive::<()>("go").await;
        Ok(())
    }
}

/// Runs F4, F5 and F6.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let (jobs, wakes) = (plan.jobs(100_000), plan.jobs(20_000));
    let (mut plain, mut parts, mut counted, mut late) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut wake, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        let from = database.reset().await?;
        database.fill(jobs).await?;
        plain.push(drain(database, Shape::Tuned, from, 0, jobs).await?.cost);
        parts.push(drained_parts(database, jobs).await?.cost);
        let joined = fan_in(database, jobs).await?;
        counted.extend(joined.counted_ms);
        late.push(joined.late_ms);
        let (cost, rate) = wakes_of(database, wakes).await?;
        wake.extend(cost.server.map(|time| time.as_secs_f64() * 1e6 / wakes as f64));
        rates.push(rate);
    }
    sink.figures(per_job("F4", "line: plain jobs", "worker us/job", jobs, &plain))?;
    sink.figures(per_job("F4", "parts", "worker us/job", jobs, &parts).into_iter().map(|record| against(record, &plain, jobs)))?;
    if !counted.is_empty() {
        sink.figure(Record::new("F5", "counting ends", "ms in all", counted))?;
    }
    sink.figure(Record::new("F5", "last verdict, joined", "ms", late))?;
    if !wake.is_empty() {
        sink.figure(Record::new("F6", "a wake", "server us", wake))?;
    }
    sink.figure(Record::new("F6", "wakes", "wakes/s", rates))
}

/// Sets the record's baseline to the result of plain jobs in the same unit.
fn against(record: Record, plain: &[Cost], jobs: u64) -> Record {
    let line = per_job("F4", "", "worker us/job", jobs, plain).into_iter().find(|line| line.unit == record.unit);
    match line {
        Some(line) => record.against(&line.runs),
        None => record,
    }
}

/// Worker in this process that runs the parent jobs.
struct Parents {
    ended: Arc<Notify>,
    working: JoinHandle<Result<(), queue_worker::Error>>,
}

impl Parents {
    fn start(database: &BenchDatabase) -> Self {
        let ended = Arc::new(Notify::new());
        let stop = Arc::clone(&ended);
        let worker = Worker::new(database.pool().clone()).register::<Fan>().register::<Waits>().queue("bench_fan", 500);
        Self { ended, working: tokio::spawn(worker.run(async move { stop.notified().await })) }
    }

    async fn stop(self) -> Result<(), BenchError> {
        self.ended.notify_one();
        self.working.await.map_err(|error| BenchError::Process(error.to_string()))??;
        Ok(())
    }
}

/// Enqueues a parent and waits until all its parts are enqueued and the parent is parked. Returns the parent's id and an id lower than the
/// ids of the parts.
async fn fanned(database: &BenchDatabase, parts: u64) -> Result<(JobId, i64), BenchError> {
    database.reset().await?;
    let parent = Fan { parts }.enqueue(database.pool()).await?.id();
    let from = database.next_id().await?;
    until(database, "select exists (select from queue.parked)", "the parent is parked").await?;
    Ok((parent, from))
}

async fn until(database: &BenchDatabase, is_so: &'static str, what: &'static str) -> Result<(), BenchError> {
    for _ in 0..60_000 {
        if sqlx::query_scalar(is_so).fetch_one(database.pool()).await? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Err(database.wrong_result("F4 to F6", format!("timed out after two minutes: {what}")))
}

/// F4: drains the parts of a map in the same way as W3 drains plain jobs. The worker that runs the parts also counts the finished parts.
async fn drained_parts(database: &BenchDatabase, parts: u64) -> Result<DrainResult, BenchError> {
    let parents = Parents::start(database);
    let (_, from) = fanned(database, parts).await?;
    parents.stop().await?;
    database.until_alone().await?;
    let drained = drain(database, Shape::Tuned, from, 0, parts).await?;
    database.check("F4", from, Expected { completed: parts, ..Expected::default() }, Some(&drained.seen)).await?;
    Ok(drained)
}

struct FanInResult {
    /// Server time in milliseconds spent counting finished parts and waking parents. `None` if the server does not track functions.
    counted_ms: Option<f64>,
    late_ms: f64,
}

const COUNTED: &str = "select coalesce(sum(total_time), 0)::float8 from pg_stat_user_functions
    where schemaname = 'queue' and funcname in ('count_gathers', 'wake_parked')";

/// F5: drains the parts of a map while the parent's worker is running. Returns the time spent counting finished parts, and the delay from
/// the end of the last part until the parent continues.
async fn fan_in(database: &BenchDatabase, parts: u64) -> Result<FanInResult, BenchError> {
    // `track_functions` is enabled for new sessions of this database. If the role lacks the privilege to enable it, `counted_ms` is
    // `None`.
    let track = "do $$ begin execute format('alter database %I set track_functions = ''pl''', current_database()); end $$";
    let tracks = sqlx::raw_sql(track).execute(database.pool()).await.is_ok();
    let counted = async || sqlx::query_scalar::<_, f64>(COUNTED).fetch_one(database.pool()).await;
    let parents = Parents::start(database);
    let (parent, from) = fanned(database, parts).await?;
    let before = counted().await?;
    drain(database, Shape::Tuned, from, 0, parts).await?;
    database.until_completed(parent.0, parts + 1).await?;
    parents.stop().await?;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let last = "select (extract(epoch from max(finished_at)) * 1e9)::float8 from (
        select finished_at from queue.done where id >= $1 union all select finished_at from queue.done_many where first_id >= $1) d";
    let last: f64 = sqlx::query_scalar(last).bind(from).fetch_one(database.pool()).await?;
    let counted_ms = if tracks { Some(counted().await? - before) } else { None };
    Ok(FanInResult { counted_ms, late_ms: (JOINED.load(Relaxed) as f64 - last) / 1e6 })
}

/// F6: sends signals to parked jobs, then measures the cost of waking the jobs. Returns the cost and the number of wake-ups per second.
async fn wakes_of(database: &BenchDatabase, jobs: u64) -> Result<(Cost, f64), BenchError> {
    let from = database.reset().await?;
    Waits::enqueue_all((0..jobs).map(|_| Waits), database.pool()).await?;
    let parents = Parents::start(database);
    let count = async || {
        sqlx::query_scalar::<_, i64>("select count(*) from queue.parked where id >= $1").bind(from).fetch_one(database.pool()).await
    };
    let mut polls = 0;
    while count().await? < jobs.cast_signed() {
        polls += 1;
        if polls > 6_000 {
            return Err(database.wrong_result("F6", "the jobs were not parked within ten minutes".to_owned()));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    parents.stop().await?;
    sqlx::raw_sql("delete from queue.signal_hint").execute(database.pool()).await?;
    sqlx::raw_sql("select count(queue.signal(id, 'go')) from queue.parked; analyze queue.parked").execute(database.pool()).await?;
    let mut connection = database.connection().await?;
    let (begin, began) = (Moment::now(database).await?, unix_ns());
    let mut moved = 0;
    while moved < jobs.cast_signed() {
        let woken: i32 = sqlx::query_scalar("select w.moved from queue.wake_parked(0, 1000) w").fetch_one(&mut *connection).await?;
        if woken == 0 {
            return Err(database.wrong_result("F6", format!("{moved} of {jobs} parked jobs were woken")));
        }
        moved += i64::from(woken);
    }
    let seconds = unix_ns().saturating_sub(began) as f64 / 1e9;
    Ok((begin.cost(database).await?, moved as f64 / seconds))
}
