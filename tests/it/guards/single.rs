//! Tests operations on a single job by its id, when the job's state changes concurrently and when the job does not exist.

use sqlx::{Connection as _, PgConnection};
use tests::{
    TestDb, operate,
    protocol::{claim, register},
};

use super::connect;

/// Statements that replace `state_of` with a function that first requeues a dead job with a delay of one hour.
const RISES: &str = "alter function queue.state_of(bigint) rename to state_now;
  create function queue.state_of(id bigint) returns text language plpgsql as $$
  begin
    with risen as (delete from queue.dead d where d.id = state_of.id returning d.id, d.lane)
    insert into queue.scheduled (run_at, id, lane) select now() + interval '1 hour', r.id, r.lane from risen r;
    return queue.state_now(state_of.id);
  end $$";

#[tokio::test]
async fn a_job_that_changes_to_a_fitting_state_between_two_queries_is_found_by_the_next() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    sqlx::raw_sql(RISES).execute(&mut on).await.unwrap();
    for act in ["cancel($1)", "reschedule($1, now() + interval '2 hours')", "run_now($1)", "set_priority($1, 7)"] {
        let job = operate::enqueue(&mut on, "default", 100, false).await.unwrap();
        let dies = "with r as (delete from queue.ready where id = $1 returning *)
          insert into queue.dead (id, died_at, lane, attempts, crashes, error) select id, now(), lane, 1, 0, 'x' from r";
        sqlx::query(dies).bind(job).execute(&mut on).await.unwrap();
        let text = format!("select queue.{act}::text");
        sqlx::query(sqlx::AssertSqlSafe(text)).bind(job).execute(&mut on).await.unwrap();
    }
    let found = "select count(*) from (select from queue.done where cancelled union all select from queue.ready
      union all select from queue.scheduled s join queue.lane l using (lane) where l.priority = 7
      union all select from queue.scheduled where run_at > now() + interval '100 minutes') t";
    assert_eq!(db.count(found).await, 4, "each act once");
    db.finish().await;
}

async fn refusal(on: &mut PgConnection, act: &str, job: i64) -> String {
    let text = format!("select queue.{act}");
    let error = sqlx::query(sqlx::AssertSqlSafe(text)).bind(job).execute(on).await.unwrap_err();
    let error = error.as_database_error().unwrap();
    format!("{} {}", error.code().unwrap_or_default(), error.message())
}

#[tokio::test]
async fn an_operation_on_one_job_succeeds_or_names_the_reason() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let dead = operate::enqueue(&mut on, "default", 100, false).await.unwrap();
    let dies = "with r as (delete from queue.ready returning *)
      insert into queue.dead (id, died_at, lane, attempts, crashes, error) select id, now(), lane, 1, 0, 'x' from r";
    sqlx::query(dies).execute(&mut on).await.unwrap();
    let acts = [
        ("cancel($1)", "ready or scheduled or blocked or parked or running can be cancelled"),
        ("reschedule($1, now())", "ready or scheduled can be rescheduled"),
        ("snooze($1, '1 s')", "ready or scheduled can be snoozed"),
        ("run_now($1)", "scheduled or parked can be run now"),
        ("set_priority($1, 7)", "ready or scheduled can be given another priority"),
    ];
    for (act, needs) in acts {
        assert_eq!(refusal(&mut on, act, 7).await, "P0002 there is no job 7", "{act}");
        assert_eq!(refusal(&mut on, act, dead.0).await, format!("55000 job {dead} is dead; only a job that is {needs}"), "{act}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_waiting_job_is_cancelled_and_a_running_one_is_cancelling() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let runs = operate::enqueue(&mut on, "default", 100, false).await.unwrap();
    let worker = register(&mut on).await.unwrap();
    assert_eq!(claim(&mut on, worker, 1).await.unwrap().ids(), [runs]);
    let waits = operate::enqueue(&mut on, "default", 100, false).await.unwrap();
    for (job, expected) in [(waits, "cancelled"), (runs, "cancelling")] {
        let cancel = sqlx::query_scalar::<_, String>("select queue.cancel($1)").bind(job);
        assert_eq!(cancel.fetch_one(&mut on).await.unwrap(), expected);
    }
    assert_eq!(db.count("select count(*) from queue.lease where cancelling = ids").await, 1);
    assert_eq!(db.count("select count(*) from queue.done where cancelled").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn a_snooze_counts_from_the_clock_not_from_the_transactions_start() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let job = operate::enqueue(&mut on, "default", 100, false).await.unwrap();
    let mut tx = on.begin().await.unwrap();
    sqlx::query("create temporary table before as select clock_timestamp() as at").execute(&mut *tx).await.unwrap();
    sqlx::query("select queue.snooze($1, '1 minute')").bind(job).execute(&mut *tx).await.unwrap();
    let later = "select run_at >= b.at + interval '1 minute' from queue.scheduled, before b";
    assert!(sqlx::query_scalar::<_, bool>(later).fetch_one(&mut *tx).await.unwrap());
    tx.commit().await.unwrap();
    db.finish().await;
}
