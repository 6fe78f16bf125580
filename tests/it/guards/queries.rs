//! Tests queries about one job while every table also has rows of other jobs. Each query returns only the job's own rows.

use queue_core::JobId;
use sqlx::{Connection as _, PgConnection};
use tests::TestDb;

use super::connect;

/// Creates jobs whose ids are in one aligned range of 2^33 ids, as a row of `done_many` requires, regardless of when the test runs. Returns
/// the base id, to which the job numbers are added. Each job has failed twice and has reported progress. Jobs 1 and 9 completed together, 2
/// and 12 separately. Jobs 3 and 13 are cancelled, 4 and 14 are dead. Jobs 5 and 15 are scheduled, 6 and 16 are running, 7 and 17 are
/// blocked, and 8 is ready.
async fn crowd(on: &mut PgConnection) -> i64 {
    let text = "do $$ declare
        base bigint := (queue.id_at(now()) >> 33) << 33;
        met  bigint := queue.ensure_lane('default', 'do', 100::smallint, false);
      begin
        insert into queue.job (id, lane, max_attempts, payload, key) select base + n, met, 3, '{}', 1 from generate_series(1, 17) n where n not in (10, 11);
        insert into queue.done_many values (base + 1, base + 9, now(), met, array[base + 1, base + 9]);
        insert into queue.done (id, finished_at, ran_ms, attempts, cancelled, output)
          select base + n, now(), 1, n, n % 10 = 3, case when n % 10 = 2 then to_jsonb(n) end from unnest(array[2, 3, 12, 13]) n;
        insert into queue.dead select base + n, now(), met, n, 0, 'dead ' || n from unnest(array[4, 14]) n;
        insert into queue.scheduled (run_at, id, lane, attempts) select now() + interval '1 hour', base + n, met, n from unnest(array[5, 15]) n;
        insert into queue.lease (token, worker, ids, attempts, crashes)
          values (gen_random_uuid(), gen_random_uuid(), array[base + 6, base + 16], array[6, 16]::smallint[], array[0, 0]::smallint[]);
        insert into queue.blocked (key, seq, id, lane) select 1, n, base + n, met from unnest(array[7, 17]) n;
        insert into queue.ready (lane, seq, id) values (met, base + 8, base + 8);
        insert into queue.failure (id, attempt, at, ran_ms, error)
          select j.id, a, now() + a * interval '1 s', 1, 'failure ' || a || ' of ' || j.id - base from queue.job j, unnest(array[1, 2]) a order by a;
        insert into queue.failure (id, attempt, at, ran_ms, error) values (base + 19, 9, now() + interval '9 s', 1, 'of another');
        insert into queue.progress (id, attempt, stage) select j.id, 1, 'stage ' || j.id - base from queue.job j;
      end $$";
    sqlx::raw_sql(text).execute(&mut *on).await.unwrap();
    sqlx::query_scalar("select min(id) - 1 from queue.job").fetch_one(on).await.unwrap()
}

type Row = (String, Option<i16>, Option<String>, Option<serde_json::Value>, Option<String>);

#[tokio::test]
async fn a_query_returns_the_requested_jobs_and_of_each_its_own_rows() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let base = crowd(&mut on).await;
    let query = "select state, attempts, error, output, stage from queue.job_states(array[$1])";
    for (places, state) in [
        ([1, 9], "completed"),
        ([2, 12], "completed"),
        ([3, 13], "cancelled"),
        ([4, 14], "dead"),
        ([5, 15], "live"),
        ([6, 16], "live"),
        ([7, 17], "live"),
        ([8, 8], "live"),
    ] {
        for place in places {
            let rows: Vec<Row> = sqlx::query_as(query).bind(base + i64::from(place)).fetch_all(&mut on).await.unwrap();
            let attempts = if [1, 9].contains(&place) { Some(1) } else { Some(place).filter(|_| state != "live") };
            let error = match state {
                "dead" => Some(format!("dead {place}")),
                "cancelled" => Some(format!("failure 2 of {place}")),
                _ => None,
            };
            let output = (place % 10 == 2).then(|| place.into());
            assert_eq!(rows, [(state.to_owned(), attempts, error, output, Some(format!("stage {place}")))], "{place}");
        }
    }
    assert_eq!(db.count("select count(*) from queue.job_states(array[7])").await, 0, "an unknown one");
    db.finish().await;
}

#[tokio::test]
async fn a_status_is_of_the_requested_job_only() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let base = crowd(&mut on).await;
    let status = "select state, attempts, error, output, stage from queue.status($1)";
    for (places, state) in [
        ([1, 9], "completed"),
        ([2, 12], "completed"),
        ([3, 13], "cancelled"),
        ([4, 14], "dead"),
        ([5, 15], "scheduled"),
        ([6, 16], "running"),
        ([7, 17], "blocked"),
        ([8, 8], "ready"),
    ] {
        for place in places {
            let rows: Vec<Row> = sqlx::query_as(status).bind(base + i64::from(place)).fetch_all(&mut on).await.unwrap();
            let attempts = if [1, 9].contains(&place) { 1 } else { place * i16::from(!["blocked", "ready"].contains(&state)) };
            let error = match state {
                "completed" => None,
                "dead" => Some(format!("dead {place}")),
                _ => Some(format!("failure 2 of {place}")),
            };
            let output = (place % 10 == 2).then(|| place.into());
            assert_eq!(rows, [(state.to_owned(), Some(attempts), error, output, Some(format!("stage {place}")))], "{place}");
        }
    }
    assert_eq!(db.count("select count(*) from queue.status(7)").await, 0, "an unknown one");
    db.finish().await;
}

#[tokio::test]
async fn a_wait_ends_at_its_timeout_and_not_with_a_requeued_job() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    sqlx::query("set statement_timeout = '30s'").execute(&mut on).await.unwrap();
    let job: JobId = sqlx::query_scalar("select queue.enqueue('do', '{}')").fetch_one(&mut on).await.unwrap();
    let other: JobId = sqlx::query_scalar("select queue.enqueue('do', '{}')").fetch_one(&mut on).await.unwrap();
    let wait = "select state from queue.wait($1, '20 ms')";
    for statement in ["", REPORT_ALL_DEAD] {
        sqlx::raw_sql(statement).execute(&mut on).await.unwrap();
        let state: Option<String> = sqlx::query_scalar(wait).bind(job).fetch_optional(&mut on).await.unwrap();
        assert_eq!(state, None, "no worker runs: {statement}");
    }
    sqlx::raw_sql("drop function queue.job_states(bigint[]); alter function queue.looked(bigint[]) rename to look")
        .execute(&mut on)
        .await
        .unwrap();
    // A transaction cannot wait for a job whose row it has written, but it can wait for any other job.
    let mut tx = on.begin().await.unwrap();
    let own: JobId = sqlx::query_scalar("select queue.enqueue('do', '{}')").fetch_one(&mut *tx).await.unwrap();
    let ours =
        sqlx::query_as::<_, (bool, bool, bool)>("select queue.is_written_here($1), queue.is_written_here($2), queue.is_written_here($3)");
    assert_eq!(ours.bind(job).bind(own).bind(other).fetch_one(&mut *tx).await.unwrap(), (false, true, false));
    tx.commit().await.unwrap();
    db.finish().await;
}

/// Statement that replaces `job_states`, so that every query of a job's state reports the job as dead although it has been requeued.
const REPORT_ALL_DEAD: &str = "alter function queue.job_states(bigint[]) rename to looked;
  create function queue.job_states(ids bigint[]) returns table (id bigint, state text) language sql as $$ select i, 'dead' from unnest(ids) i $$";
