//! Tests locked rows while another worker is running, similar jobs are enqueued, and another session has already locked rows of other
//! jobs in the same table. The log names the session that has locked the row and the job that waits for the row.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use queue_core::{Job as _, JobId};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgPool};
use tests::{TestDb, eventually, server::TestServer, within};
use tokio::sync::oneshot;

use super::{Keyed, Mapper, Of, Parent, Plain, Warnings, count_left, enqueue_flow, gate, left, worker};

/// Table, statement that locks the rows of the jobs `$1`, and whether the lock is taken within a savepoint. The holder of a lock that was
/// taken within a savepoint is unknown, so the log names all candidates.
const CASES: [(&str, &str, bool); 8] = [
    ("blocked", "select from queue.blocked b where b.id = any ($1) for update", false),
    ("blocked", "select from queue.blocked b where b.id = any ($1) for update", true),
    ("child", "select from queue.child c where c.parent = any ($1) for update", false),
    ("node", "select from queue.node n where n.id = any ($1) for update", false),
    ("edge", "select from queue.edge e where e.target = any ($1) for update", false),
    ("gather", "select from queue.gather g where g.parent = any ($1) for update", false),
    ("gather_part", "select from queue.gather_part p where p.parent = any ($1) for update", false),
    ("parked", "select from queue.parked p where p.id = any ($1) for update", false),
];

/// Enqueues jobs that wait for other jobs. The other jobs wait for the gate `name`.
async fn enqueue(pool: &PgPool, name: &str) -> Vec<JobId> {
    let of = || Of { gate: name.to_owned(), fails: false };
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(Keyed(of()).enqueue(pool).await.unwrap().id());
    }
    ids.push(Parent(of()).enqueue(pool).await.unwrap().id());
    ids.push(Mapper(of()).enqueue(pool).await.unwrap().id());
    ids.extend(enqueue_flow(pool, of()).await);
    ids
}

/// Query for the number of jobs that wait for other jobs. Before the gate opens, four jobs wait: one behind its key, two parents, and one
/// node.
const WAIT: &str =
    "select (select count(*) from queue.blocked b where b.id = any ($1)) + (select count(*) from queue.parked p where p.id = any ($1))";

/// Query for the ids of the jobs and of all jobs that they have created.
const FAMILY: &str = "select u.id::text from unnest($1::bigint[]) u (id)
    union select c.id::text from queue.child c where c.parent = any ($1)
    union select p.id::text from queue.gather_part p where p.parent = any ($1)";

async fn lock(on: &mut PgConnection, sql: &'static str, is_savepoint: bool, jobs: &[JobId]) -> i32 {
    on.execute(if is_savepoint { "begin; savepoint one" } else { "begin" }).await.unwrap();
    let locked = sqlx::query(AssertSqlSafe(sql)).bind(jobs).execute(&mut *on).await.unwrap().rows_affected();
    assert!(locked > 0, "{sql}");
    if is_savepoint {
        on.execute("release one").await.unwrap();
    }
    sqlx::query_scalar("select pg_backend_pid()").fetch_one(on).await.unwrap()
}

async fn check((table, sql, is_savepoint): (&str, &'static str, bool), warnings: &Warnings) -> Option<String> {
    let db = TestDb::new().await;
    let name: String = db.one("select current_database()::text").await;
    let [calm, held, open] = ["calm", "held", "open"].map(|what| format!("{name} {what}"));
    let (others, jobs) = (enqueue(&db.pool, &calm).await, enqueue(&db.pool, &held).await);
    gate(&open).add_permits(1_000_000);
    let traffic = async {
        loop {
            enqueue(&db.pool, &open).await;
        }
    };
    let test = async {
        for of in [&others, &jobs] {
            eventually("they wait", async || sqlx::query_scalar::<_, i64>(WAIT).bind(of).fetch_one(&db.pool).await.unwrap() == 4).await;
        }
        let (mut innocent, mut holder) = (db.connect().await, db.connect().await);
        let not = lock(&mut innocent, sql, false, &others).await;
        let pid = lock(&mut holder, sql, is_savepoint, &jobs).await;
        let family: Vec<String> = sqlx::query_scalar(FAMILY).bind(&jobs).fetch_all(&db.pool).await.unwrap();
        gate(&held).add_permits(1000);
        eventually("a session is named", async || {
            warnings.with("pid", pid).is_some() || (!is_savepoint && warnings.with("pid", not).is_some())
        })
        .await;
        let (named, wrongly) = (warnings.with("pid", pid), warnings.with("pid", not));
        let waits = count_left(&db.pool, &jobs).await;
        gate(&calm).add_permits(1000);
        for session in [innocent, holder] {
            session.close().await.unwrap();
        }
        let lost = left(&db.pool, &jobs).await + left(&db.pool, &others).await;
        match named {
            Some((of, job)) if of == table && (is_savepoint || wrongly.is_none()) && lost == 0 && waits > 0 && family.contains(&job) => {
                None
            }
            named => Some(format!("{table}: {named:?} is named, the other session {wrongly:?}, {waits} waited, {lost} did not end")),
        }
    };
    let both = db.run_while(worker(&db.pool), db.run_while(worker(&db.pool), test));
    let fault = tokio::select! {
        fault = both => fault,
        () = traffic => unreachable!("it never ends"),
    };
    db.finish().await;
    fault
}

#[tokio::test]
#[ignore = "deep"]
async fn the_log_names_the_session_that_has_a_row_locked_and_a_job_that_waits_for_it() {
    let warnings = Warnings::collect();
    let checks = stream::iter(CASES).map(|case| check(case, &warnings));
    let faults: Vec<Option<String>> = checks.buffer_unordered(2).collect().await;
    let faults: Vec<String> = faults.into_iter().flatten().collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[tokio::test]
#[ignore = "deep"]
async fn the_log_names_a_prepared_transaction() {
    let warnings = Warnings::collect();
    let server = TestServer::start_with(&["fsync=off", "max_prepared_transactions=2"]).await.unwrap();
    let db = server.database("prepared").await.unwrap();
    let job = enqueue_flow(&db.pool, Of { gate: "prepared".to_owned(), fails: false }).await[1];
    let mut on = PgConnection::connect(&server.url("prepared")).await.unwrap();
    lock(&mut on, "select from queue.parked p where p.id = any ($1) for update", false, &[job]).await;
    on.execute("prepare transaction 'lost'").await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = tokio::spawn(worker(&db.pool).run(async move { stopped.await.unwrap_or_default() }));
    gate("prepared").add_permits(1000);
    eventually("it is named", async || warnings.with("prepared", "lost").is_some()).await;
    assert_eq!(warnings.with("prepared", "lost"), Some(("parked".to_owned(), job.to_string())));
    on.execute("rollback prepared 'lost'").await.unwrap();
    assert_eq!(left(&db.pool, &[job]).await, 0);
    stop.send(()).unwrap();
    worker.await.unwrap().unwrap();
    server.stop().unwrap();
}

/// A transaction locks the jobs of more keys than a worker handles in one pass.
#[tokio::test]
#[ignore = "deep"]
async fn a_key_continues_behind_a_thousand_locked_by_one_transaction_which_is_named() {
    const KEPT: usize = 1_500;
    let warnings = Warnings::collect();
    let db = TestDb::new().await;
    let name: String = db.one("select current_database()::text").await;
    let of = || Of { gate: name.clone(), fails: false };
    let mut tx = db.pool.begin().await.unwrap();
    let mut kept = Vec::new();
    for nth in 0..2 * KEPT {
        kept.push(Plain(of()).enqueue(&mut tx).key((nth % KEPT).to_string()).await.unwrap().id());
    }
    tx.commit().await.unwrap();
    let mut holder = db.connect().await;
    let pid = lock(&mut holder, "select from queue.blocked b where b.id = any ($1) for update", false, &kept).await;
    gate(&name).add_permits(10 * KEPT);
    let test = async {
        within(Duration::from_mins(1), "the first of each key have finished", async || count_left(&db.pool, &kept).await as usize == KEPT)
            .await;
        let mut new = Vec::new();
        for _ in 0..2 {
            new.push(Plain(of()).enqueue(&db.pool).key("new").await.unwrap().id());
        }
        assert_eq!(left(&db.pool, &new).await, 0, "they wait for nothing that is locked");
        eventually("the session is named", async || warnings.with("pid", pid).is_some()).await;
        assert_eq!(count_left(&db.pool, &kept).await as usize, KEPT);
        holder.close().await.unwrap();
        assert_eq!(left(&db.pool, &kept).await, 0);
    };
    db.run_while(worker(&db.pool), test).await;
    db.finish().await;
}
