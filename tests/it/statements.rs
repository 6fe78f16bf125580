//! Explains every statement of the product with a worker's settings, and with different table statistics at planning time. No plan may
//! scan a huge table or one of its indexes completely, except as permitted by `WHOLE` and `OPERATORS`.

use std::{collections::BTreeSet, fs, path::Path, str::FromStr as _};

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, postgres::PgConnectOptions};
use tests::TestDb;

/// Planner settings as in `queue-worker/src/live/session.rs`. A test below checks that the settings match.
const PLANNER: [(&str, &str); 4] =
    [("enable_seqscan", "off"), ("enable_bitmapscan", "off"), ("plan_cache_mode", "force_generic_plan"), ("jit", "off")];

/// Tables that may be huge. Partitions are named after their table.
const HUGE: [&str; 11] =
    ["ready", "scheduled", "parked", "blocked", "lease", "job", "done", "done_many", "failure", "tallied", "tally_total"];

/// Permitted scans of whole tables or whole indexes, each with its reason.
const WHOLE: [(&str, &str, &str); 20] = [
    ("choose_running", "lease", "an operator asks for running jobs; there are as many leases as batches in flight"),
    ("own_leases", "lease", "asks of every lease whose it is; there are as many as batches in flight"),
    ("prune_kept", "done", "only the default partition, once a minute; up to a limit"),
    ("prune_kept", "done_many", "only the default partition, once a minute; up to a limit"),
    ("park", "lease", "a job whose verdict is refused is searched in every lease; there are as many as batches in flight"),
    ("expired_leases", "lease", "asks of every lease whether its worker lives; there are as many as batches in flight"),
    ("prune_workers", "lease", "asks for leases of silent workers, once a minute"),
    ("workers", "lease", "counts what each worker holds, for an operator"),
    ("prune_done", "done", "only the default partition, once a minute; up to a limit"),
    ("prune_done", "done_many", "only the default partition, once a minute; up to a limit"),
    ("doctor_workers", "lease", "counts what each worker holds, for an operator"),
    ("doctor_keys", "blocked", "the first entry of an index"),
    ("doctor_maintenance", "tallied", "the first entry of an index"),
    ("pass_lanes", "job", "the last entry of an index"),
    ("any_work", "scheduled", "the first entry of an index"),
    ("any_work", "parked", "the first entry of an index"),
    ("any_work", "lease", "asks of every lease whether its worker lives; there are as many as batches in flight"),
    ("probe", "scheduled", "the first entry of an index"),
    ("probe", "parked", "the first entry of an index"),
    ("probe", "ready", "the first entry of an index, when there are too many lanes to ask one by one"),
];

/// Statements of operators. The server usually plans these statements on each execution, so outdated statistics do not matter.
const OPERATORS: [&str; 12] = [
    "cancel_waiting",
    "choose_blocked",
    "choose_dead",
    "choose_parked",
    "choose_ready",
    "choose_running",
    "choose_scheduled",
    "failures",
    "failures_of",
    "list",
    "unserved",
    "workers",
];

/// Returns the name and the statement of each file.
fn statements() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folders = ["queue-core/sql", "queue-worker/sql"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut found: Vec<(String, String)> =
        files.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap())).collect();
    found.sort();
    assert!(found.len() > 25, "the statements were found");
    found
}

/// Returns a connection with a worker's settings.
async fn connect(db: &TestDb) -> PgConnection {
    let options = PgConnectOptions::from_str(&db.url).unwrap().options(PLANNER).options([("search_path", "pg_catalog")]);
    PgConnection::connect_with(&options).await.unwrap()
}

async fn run(connection: &mut PgConnection, statement: String) {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(statement.clone()))).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
}

/// Creates the generic plan of a statement. Returns the plan, and its text for the message of a failed test.
async fn plan(connection: &mut PgConnection, name: &str, statement: &str) -> (Value, String) {
    run(connection, format!("prepare {name} as {statement}")).await;
    let parameters: i32 =
        sqlx::query_scalar("select coalesce(cardinality(parameter_types), 0) from pg_prepared_statements where name = $1")
            .bind(name)
            .fetch_one(&mut *connection)
            .await
            .unwrap();
    let nulls = vec!["null"; usize::try_from(parameters).unwrap()].join(", ");
    let execute = if nulls.is_empty() { format!("execute {name}") } else { format!("execute {name}({nulls})") };
    let explain = |format| AssertSqlSafe(format!("explain (format {format}) {execute}"));
    let plan: Value = sqlx::query_scalar(explain("json")).persistent(false).fetch_one(&mut *connection).await.unwrap();
    let text: Vec<String> = sqlx::query_scalar(explain("text")).persistent(false).fetch_all(&mut *connection).await.unwrap();
    run(connection, format!("deallocate {name}")).await;
    (plan[0]["Plan"].clone(), text.join("\n"))
}

/// Returns every node of a plan.
fn nodes(plan: &Value) -> Vec<&Value> {
    let below = plan["Plans"].as_array().into_iter().flatten();
    std::iter::once(plan).chain(below.flat_map(nodes)).collect()
}

/// Returns the huge tables that a plan scans completely, either sequentially or through a whole index.
fn whole(plan: &Value) -> BTreeSet<String> {
    let wholly = |node: &&Value| {
        let bounded = node["Index Cond"].is_string() || node["TID Cond"].is_string() || node["Recheck Cond"].is_string();
        node["Relation Name"].is_string() && !bounded && node["Node Type"] != "ModifyTable"
    };
    nodes(plan).into_iter().filter(wholly).filter_map(|node| huge(node["Relation Name"].as_str()?)).collect()
}

/// Returns the huge table with this name, or the huge table with a partition of this name.
fn huge(relation: &str) -> Option<String> {
    let table = HUGE.into_iter().find(|table| {
        let day = relation.strip_prefix(table).and_then(|rest| rest.strip_prefix('_'));
        relation == *table || day.is_some_and(|day| day == "default" || day.bytes().all(|byte| byte.is_ascii_digit()))
    });
    table.map(str::to_owned)
}

/// Explains every statement. Panics if a plan scans a whole huge table and neither `WHOLE` nor `OPERATORS` permits the scan, or if the
/// claim does not read its index in order. Returns the scans in `WHOLE` that occurred.
async fn check(db: &TestDb, tables: &str) -> BTreeSet<(String, String)> {
    let mut connection = connect(db).await;
    let (mut faults, mut excused) = (Vec::new(), BTreeSet::new());
    for (name, statement) in statements() {
        if statement.contains("\ncopy ") {
            continue;
        }
        let (plan, text) = plan(&mut connection, &name, &statement).await;
        for table in whole(&plan) {
            match WHOLE.iter().find(|(file, read, _)| *file == name && *read == table) {
                Some(_) => drop(excused.insert((name.clone(), table))),
                None if OPERATORS.contains(&name.as_str()) && tables.contains("known to be empty") => {}
                None => faults.push(format!("{name}.sql reads all of {table}:\n{text}")),
            }
        }
        if name == "claim" {
            let index = nodes(&plan).into_iter().any(|node| {
                let condition = node["Index Cond"].as_str().unwrap_or_default();
                node["Index Name"] == "ready_claim" && condition.contains("lane = ") && condition.contains("seq >= ")
            });
            assert!(index, "the claim goes by lane and place, tables {tables}:\n{text}");
            let reads = |node: &&Value| node["Relation Name"] == "ready";
            let sorts = nodes(&plan).into_iter().any(|node| node["Node Type"] == "Sort" && nodes(node).iter().any(reads));
            assert!(!sorts, "the claim takes the first entries of an index, tables {tables}:\n{text}");
        }
    }
    assert!(faults.is_empty(), "tables {tables}:\n{}", faults.join("\n"));
    excused
}

/// Statements that fill 300 lanes with 200,000 ready, 200,000 scheduled and 200,000 finished jobs, and with 50,000 jobs under leases.
const FILL: &str = "
  insert into queue.lane (lane, queue, job_type, priority, solo)
  select queue.lane_id('q' || n, 'do', 100::smallint, false), 'q' || n, 'do', 100, false from generate_series(1, 300) n;
  create temporary table made as
    select n, queue.next_id() as id, queue.lane_id('q' || 1 + n % 300, 'do', 100::smallint, false) as lane from generate_series(1, 650000) n;
  insert into queue.job (id, lane, max_attempts, payload) select id, lane, 3, '{}' from made;
  insert into queue.ready (lane, seq, id) select lane, id, id from made where n <= 200000;
  insert into queue.scheduled (run_at, id, lane) select now() + n * interval '1 s', id, lane from made where n between 200001 and 400000;
  insert into queue.lease (token, worker, ids, attempts, crashes)
    select gen_random_uuid(), gen_random_uuid(), array_agg(id), array_agg(1::smallint), array_agg(0::smallint)
    from made where n between 400001 and 450000 group by n / 10;
  insert into queue.done (id, finished_at, ran_ms, attempts) select id, now(), 1, 2 from made where n between 450001 and 550000;
  insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
    select min(id), max(id), now(), lane, array_agg(id order by id) from made where n > 550000 group by lane, id >> 33;
  insert into queue.failure (id, attempt, at, ran_ms, error) select id, 1, now(), 1, 'x' from made where n between 450001 and 550000;
  drop table made;
";

/// Disables autovacuum, so that the test controls the statistics.
async fn without_autovacuum(db: &TestDb) {
    let tables: Vec<String> = sqlx::query_scalar(
        "select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'queue' and c.relkind = 'r'",
    )
    .fetch_all(&db.pool)
    .await
    .unwrap();
    for table in tables {
        db.pool.execute(AssertSqlSafe(format!("alter table {table} set (autovacuum_enabled = off)"))).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn no_plan_depends_on_table_statistics() {
    let db = TestDb::new().await;
    without_autovacuum(&db).await;
    let mut excused = check(&db, "empty").await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    run(&mut connection, FILL.to_owned()).await;
    excused.append(&mut check(&db, "huge, never analysed").await);
    run(&mut connection, "analyze".to_owned()).await;
    excused.append(&mut check(&db, "huge, analysed").await);
    for table in HUGE {
        run(&mut connection, format!("delete from queue.{table}")).await;
    }
    excused.append(&mut check(&db, "bloated, believed to be huge").await);
    run(&mut connection, "analyze".to_owned()).await;
    excused.append(&mut check(&db, "bloated, known to be empty").await);
    let stale: Vec<_> = WHOLE.iter().filter(|(file, read, _)| !excused.contains(&((*file).to_owned(), (*read).to_owned()))).collect();
    assert!(stale.is_empty(), "no longer needed: {stale:?}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn no_plan_depends_on_statistics_of_empty_tables() {
    let db = TestDb::new().await;
    without_autovacuum(&db).await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    run(&mut connection, "vacuum analyze".to_owned()).await;
    check(&db, "known to be empty").await;
    run(&mut connection, FILL.to_owned()).await;
    check(&db, "believed to be empty").await;
    db.finish().await;
}

#[test]
fn the_planner_is_set_as_a_workers() {
    let connect = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../queue-worker/src/live/session.rs")).unwrap();
    for (setting, value) in PLANNER {
        assert!(connect.contains(&format!("(\"{setting}\", \"{value}\")")), "a worker sets {setting} otherwise");
    }
}
