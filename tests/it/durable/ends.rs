//! Tests how the end of a job is reported to the parent, map or flow that waits for the job. Also tests reports that are deferred
//! because another session has locked the rows.

use queue_core::JobId;
use sqlx::PgConnection;
use tests::{
    Sql as _,
    children::{add_end_hints, consume_end_hints, prune_children},
    complete, die,
};

use super::{db_by_hand, signals::races::leased};

/// Ways to wait for another job. Each entry contains a table, a statement that makes job or flow `$2` wait for job `$1`, and a predicate
/// that matches the rows of jobs that were reported as finished. The predicate for `gather_part` matches no row, because a report deletes
/// the job's row from that table.
const WAYS: [(&str, &str, &str); 3] = [
    ("child", "insert into queue.child (parent, name, id) values ($2, $1, $1)", "state is not null"),
    ("gather_part", "insert into queue.gather_part (id, parent, born, nr, name, held) values ($1, $2, 1, $1, 'map', false)", "false"),
    ("node", "insert into queue.node (flow, name, id, after, on_dead) values ($2, $1, $1, '{}', '{}')", "ended is not null"),
];
const HINTS: &str = "select count(*) from queue.end_hint";

/// Enqueues `count` jobs, and executes the statement `row` to make the parent wait for each job.
async fn waited_for(on: &mut PgConnection, row: &str, parent: JobId, count: i32) -> Vec<JobId> {
    let jobs: Vec<JobId> = on.all(&format!("select queue.enqueue('child', '{{}}') from generate_series(1, {count})")).await;
    for job in &jobs {
        on.run(&row.replace("$1", &job.to_string()).replace("$2", &parent.to_string())).await;
    }
    jobs
}

/// Writes one end hint, which records that `jobs` have reached the final state `state`.
async fn hint(on: &mut PgConnection, state: &str, jobs: &[JobId]) {
    let hint = sqlx::query("insert into queue.end_hint (state, ids) values ($1, $2)").bind(state).bind(jobs);
    hint.execute(on).await.unwrap();
}

/// Returns the jobs in `jobs` whose end was reported to the job or flow that waits for them.
async fn reported_jobs(on: &mut PgConnection, (table, _, condition): (&str, &str, &str), jobs: &[JobId]) -> Vec<JobId> {
    let statement = format!("select u from unnest($1) u where not exists (select from queue.{table} where id = u and not ({condition}))");
    sqlx::query_scalar(sqlx::AssertSqlSafe(statement)).bind(jobs).fetch_all(on).await.unwrap()
}

#[tokio::test]
async fn a_hint_is_left_for_each_awaited_finished_job_and_for_no_other() {
    let (db, mut on) = db_by_hand().await;
    let (parent, _) = leased(&db).await;
    let others: Vec<JobId> = on.all("select queue.enqueue('child', '{}') from generate_series(1, 2)").await;
    complete(&mut on, others[0], "'7'").await;
    die(&mut on, others[1]).await;
    add_end_hints(&mut on, &others).await.unwrap();
    assert_eq!(on.one::<i64>(HINTS).await, 0, "no other waits for them");
    for way @ (table, row, _) in WAYS {
        let jobs = waited_for(&mut on, row, parent.id(), 4).await;
        complete(&mut on, jobs[0], "'7'").await;
        die(&mut on, jobs[1]).await;
        on.run(&format!("delete from queue.ready where id = {0}; delete from queue.job where id = {0}", jobs[2])).await;
        add_end_hints(&mut on, &jobs).await.unwrap();
        let hints = "select state || unnest(ids) from queue.end_hint order by 1";
        let states = [("completed", jobs[0]), ("completed", jobs[2]), ("dead", jobs[1])].map(|(state, job)| format!("{state}{job}"));
        assert_eq!(on.all::<String>(hints).await, states, "{table}: one has not finished, and one kept no record");
        consume_end_hints(&mut on).await.unwrap();
        assert_eq!(reported_jobs(&mut on, way, &jobs).await, jobs[..3], "{table}");
    }
    drop(on);
    db.finish().await;
}

#[tokio::test]
async fn a_job_requeued_since_its_hint_is_not_reported_and_an_end_is_reported_once() {
    let (db, mut on) = db_by_hand().await;
    let (parent, _) = leased(&db).await;
    for way @ (table, row, _) in WAYS {
        let jobs = waited_for(&mut on, row, parent.id(), 2).await;
        hint(&mut on, "dead", &jobs).await;
        complete(&mut on, jobs[0], "'7'").await;
        consume_end_hints(&mut on).await.unwrap();
        assert_eq!(
            (reported_jobs(&mut on, way, &jobs).await, on.one::<i64>(HINTS).await),
            (jobs[..1].to_vec(), 0),
            "{table}: one is ready again"
        );
        let hints = "select (select count(*) from queue.signal_hint) + (select count(*) from queue.gather_hint)";
        let before: i64 = on.one(hints).await;
        hint(&mut on, "completed", &jobs[..1]).await;
        consume_end_hints(&mut on).await.unwrap();
        assert_eq!(on.one::<i64>(hints).await, before, "{table}: reported twice, it counts once");
    }
    drop(on);
    db.finish().await;
}

#[tokio::test]
async fn an_end_locked_by_another_session_is_reported_later_and_delays_no_other() {
    let (db, mut on) = db_by_hand().await;
    let (parent, _) = leased(&db).await;
    on.run("set statement_timeout = '20 s'").await;
    for way @ (table, row, _) in WAYS {
        let jobs = waited_for(&mut on, row, parent.id(), 2).await;
        for job in &jobs {
            complete(&mut on, *job, "'7'").await;
        }
        hint(&mut on, "completed", &jobs).await;
        let mut held = db.pool.begin().await.unwrap();
        held.run(&format!("select from queue.{table} where id = {} for update", jobs[0])).await;
        consume_end_hints(&mut on).await.unwrap();
        let kept: Vec<JobId> = on.all("select unnest(ids) from queue.end_hint").await;
        assert_eq!((reported_jobs(&mut on, way, &jobs).await, kept), (jobs[1..].to_vec(), jobs[..1].to_vec()), "{table}");
        held.rollback().await.unwrap();
        consume_end_hints(&mut on).await.unwrap();
        assert_eq!((reported_jobs(&mut on, way, &jobs).await, on.one::<i64>(HINTS).await), (jobs, 0), "{table}");
    }
    // Another consumer has locked one of two hints.
    let way = WAYS[0];
    let jobs = waited_for(&mut on, way.1, parent.id(), 2).await;
    for job in &jobs {
        complete(&mut on, *job, "'7'").await;
        hint(&mut on, "completed", &[*job]).await;
    }
    let mut held = db.pool.begin().await.unwrap();
    held.run(&format!("select from queue.end_hint where ids = array[{}::bigint] for update", jobs[0])).await;
    assert_eq!((consume_end_hints(&mut on).await.unwrap(), reported_jobs(&mut on, way, &jobs).await), (1, jobs[1..].to_vec()));
    // While another session locks the table, the scan for children of deleted jobs fails after a short lock timeout.
    held.run("lock table queue.child in access exclusive mode").await;
    let error = prune_children(&mut on).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("55P03"), "lock_not_available: {error}");
    held.rollback().await.unwrap();
    drop(on);
    db.finish().await;
}

#[tokio::test]
async fn running_children_are_cancelled_and_those_of_a_dead_letter_are_queried_again() {
    let (db, mut on) = db_by_hand().await;
    let ((parent, _), (runs, _)) = (leased(&db).await, leased(&db).await);
    let row = WAYS[0].1;
    on.run(&row.replace("$1", &runs.id().to_string()).replace("$2", &parent.id().to_string())).await;
    let dead = waited_for(&mut on, row, parent.id(), 1).await;
    die(&mut on, dead[0]).await;
    add_end_hints(&mut on, &dead).await.unwrap();
    consume_end_hints(&mut on).await.unwrap();
    on.run(&format!("select queue.reset_children(array[{}])", parent.id())).await;
    assert_eq!(reported_jobs(&mut on, WAYS[0], &dead).await, [], "it may have been brought back");
    consume_end_hints(&mut on).await.unwrap();
    assert_eq!(reported_jobs(&mut on, WAYS[0], &dead).await, dead, "it was not");
    on.run(&format!("select queue.cancel_children(array[{}])", parent.id())).await;
    let cancelling: Vec<JobId> = on.all("select unnest(cancelling) from queue.lease").await;
    assert_eq!(cancelling, [runs.id()]);
    let children = format!("select count(*) from queue.children({})", parent.id());
    assert_eq!(on.one::<i64>(&children).await, 2);
    on.run(&format!("delete from queue.lease where {0} = any (ids); delete from queue.job where id = {0}", parent.id())).await;
    assert_eq!(on.one::<i64>(&children).await, 0, "nothing is reported of a deleted job");
    drop(on);
    db.finish().await;
}
