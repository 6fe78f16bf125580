//! One table at a time that an open transaction has locked, by its rows or as `create index` does: jobs that have nothing to do with what is locked go
//! on meanwhile, and all others once it ends.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use queue_core::{Context, Durable, Failure, Flow, Handler, Job as _, JobId, JobResult, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool};
use tests::TestDb;
use tokio::sync::Semaphore;

/// What jobs of a database wait for, by its name and theirs.
static GATES: LazyLock<Mutex<HashMap<String, Arc<Semaphore>>>> = LazyLock::new(Mutex::default);

fn gate(name: &str) -> Arc<Semaphore> {
    Arc::clone(GATES.lock().unwrap().entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(0))))
}

/// How a job ends once its gate is open.
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

#[job(name = "locked_told", output = String)]
#[derive(Clone, Serialize, Deserialize)]
struct Told(Of);

impl Handler for Told {
    async fn run(self, cx: &Context) -> JobResult<String> {
        cx.progress(0.5);
        self.0.end().await?;
        Ok("told".to_owned())
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

/// Leaves no record, but for that of its first attempt, which fails.
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

/// Begins anew once.
#[job(name = "locked_anew", durable)]
#[derive(Clone, Serialize, Deserialize)]
struct Anew {
    of: Of,
    is_last: bool,
}

impl Handler for Anew {
    async fn run(self, cx: &Durable) -> JobResult {
        if !self.is_last {
            self.of.end().await?;
            cx.restart(Self { is_last: true, ..self }).await;
        }
        Ok(())
    }
}

fn worker(pool: &PgPool) -> Worker {
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
        .register::<Told>()
        .register::<Parent>()
        .register::<Mapper>()
        .register::<Steps>()
        .register::<Again>()
        .register::<Anew>()
}

/// Jobs of every kind, which end once the first gate is open; and plain ones, of which each waits for the second.
async fn enqueue(db: &TestDb, first: &str, second: &str) -> (Vec<JobId>, Vec<JobId>) {
    let of = || Of { gate: first.to_owned(), fails: false };
    let mut all = Vec::new();
    macro_rules! put {
        ($($job:expr),* $(,)?) => { $(all.push($job.enqueue(&db.pool).await.unwrap().id());)* };
    }
    put!(Keyed(of()), Limited(of()), OfKey(of()), Fair(of()), Brief(of()), Expiring(of()), Told(of()), Parent(of()), Mapper(of()));
    put!(Again(of()), Anew { of: of(), is_last: false });
    put!(Steps(of()), Plain(Of { fails: true, ..of() }), Plain(of()));
    let mut flow = Flow::new("flow");
    let before = flow.add("before", Child(of()));
    flow.add("after", Plain(of())).after(&before);
    let mut tx = db.pool.begin().await.unwrap();
    let flow = flow.enqueue(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    all.extend(flow.jobs().map(|(_, job)| job));
    let of = || Of { gate: second.to_owned(), fails: false };
    let mut others = vec![Told(of()).enqueue(&db.pool).await.unwrap().id()];
    for _ in 0..3 {
        others.push(Other(of()).enqueue(&db.pool).await.unwrap().id());
    }
    (all, others)
}

/// How many of these jobs are not over after half a minute.
async fn left(db: &TestDb, jobs: &[JobId]) -> i64 {
    let ids = jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let left =
        format!("select count(*) from unnest(array[{ids}]::bigint[]) j (id) where queue.state_of(j.id) not in ('completed', 'dead')");
    for _ in 0..600 {
        if db.count(&left).await == 0 {
            return 0;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    db.count(&left).await
}

/// What every verdict is written to: while one of these is locked as a whole none is, and the log says who has it.
const OF_ALL: [&str; 9] = ["lease", "done", "done_many", "dead", "failure", "ready", "scheduled", "active_key", "key_hint"];

/// What holds the rows of this table, but for those of these jobs.
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

/// Locks a table, or its rows, while jobs of every kind end; says what did not go on.
async fn check(table: &str, is_row: bool) -> Option<String> {
    let db = TestDb::new().await;
    let name: String = db.one("select current_database()::text").await;
    let (first, second) = (format!("{name} first"), format!("{name} second"));
    let (all, others) = enqueue(&db, &first, &second).await;
    let test = async {
        db.until_count("select (select count(*) from queue.lease l, unnest(l.ids)) + (select count(*) from queue.failure)", 22).await;
        let mut holder = db.connect().await;
        let mut held = holder.begin().await.unwrap();
        let lock = if is_row { lock_rows(&mut held, table, &others).await } else { format!("lock table queue.{table} in share mode") };
        held.execute(sqlx::AssertSqlSafe(lock)).await.unwrap();
        gate(&first).add_permits(1000);
        gate(&second).add_permits(1000);
        let stopped = if !is_row && OF_ALL.contains(&table) { 0 } else { left(&db, &others).await };
        held.rollback().await.unwrap();
        (stopped, left(&db, &all).await + left(&db, &others).await)
    };
    let (stopped, lost) = db.run_while(worker(&db.pool), test).await;
    db.finish().await;
    let what = if is_row { "rows" } else { "the table" };
    (stopped > 0 || lost > 0).then(|| format!("{table}, {what}: {stopped} others stopped, {lost} jobs did not end once it was free"))
}

#[tokio::test]
#[ignore = "deep"]
async fn what_is_locked_in_one_table_stops_no_job_that_has_nothing_to_do_with_it() {
    let db = TestDb::new().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "select c.relname::text from pg_class c where c.relnamespace = 'queue'::regnamespace and c.relkind in ('r', 'p')
        and not c.relispartition order by 1",
    )
    .fetch_all(&db.pool)
    .await
    .unwrap();
    db.finish().await;
    let cases = tables.iter().flat_map(|table| [(table, true), (table, false)]);
    let found: Vec<Option<String>> = stream::iter(cases).map(|(table, is_row)| check(table, is_row)).buffer_unordered(3).collect().await;
    let found: Vec<String> = found.into_iter().flatten().collect();
    assert!(found.is_empty(), "{found:#?}");
}
