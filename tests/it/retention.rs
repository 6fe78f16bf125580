//! Tests the retention of finished jobs, by type and with a separate retention for dead letters.

use std::time::Duration;

use queue_core::{Context, Handler, JobId, JobResult, Store, job};
use queue_worker::{Config, Worker};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection};
use tests::{TestDb, eventually};

/// Job type whose retention is longer than the store's seven days.
#[job(name = "kept_long", retain = "30d")]
#[derive(Serialize, Deserialize)]
struct Long;

/// Job type whose retention is shorter than the store's.
#[job(name = "kept_briefly", retain = "1h")]
#[derive(Serialize, Deserialize)]
struct Brief;

/// Job type with the store's default retention.
#[job(name = "kept_plainly")]
#[derive(Serialize, Deserialize)]
struct Plain;

impl Handler for Long {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

impl Handler for Brief {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

impl Handler for Plain {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn worker(db: &TestDb) -> Worker {
    Worker::new(db.pool.clone()).register::<Long>().register::<Brief>().register::<Plain>()
}

/// Creates the partitions for the day `days_ago` days ago.
async fn make_past_day(db: &TestDb, days_ago: i32) {
    let make = "do $$ declare day date := (now() at time zone 'UTC')::date - N; parent text; begin
       foreach parent in array array['job', 'done', 'done_many', 'failure', 'step'] loop
         execute format('create table queue.%I partition of queue.%I for values from (%s) to (%s)', parent || '_' || queue.day_name(day), parent,
           queue.id_at(day::timestamp at time zone 'UTC'), queue.id_at((day + 1)::timestamp at time zone 'UTC'));
       end loop;
     end $$";
    sqlx::raw_sql(sqlx::AssertSqlSafe(make.replace('N', &days_ago.to_string()))).execute(&db.pool).await.unwrap();
}

/// Creates a job that finished `hours_ago` hours ago, shortly after it was enqueued. Its record is in `done_many` if `plainly` is true, and
/// in `done` otherwise.
async fn create_past_job(on: &mut PgConnection, job_type: &str, hours_ago: i32, plainly: bool) -> JobId {
    let job = "insert into queue.job (id, lane, max_attempts, payload)
       select queue.id_at(now() - $1 * interval '1 hour') + nextval('queue.id_seq') % 1000, queue.ensure_lane('default', $2, 100::smallint, false), 3, '{}'
       returning id";
    let id: JobId = sqlx::query_scalar(job).bind(hours_ago).bind(job_type).fetch_one(&mut *on).await.unwrap();
    let statement = if plainly {
        "insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
         select id, id, now() - $2 * interval '1 hour', lane, array[id] from queue.job where id = $1"
    } else {
        "insert into queue.done (id, finished_at, ran_ms, attempts) values ($1, now() - $2 * interval '1 hour', 1, 2)"
    };
    sqlx::query(statement).bind(id).bind(hours_ago).execute(on).await.unwrap();
    id
}

async fn is_there(db: &TestDb, id: JobId) -> bool {
    db.state(id).await.is_some()
}

#[tokio::test]
async fn each_type_is_kept_for_its_own_time_through_the_drop_of_its_day() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    make_past_day(&db, 10).await;
    make_past_day(&db, 40).await;
    let (mut stay, mut go) = (Vec::new(), Vec::new());
    for plainly in [false, true] {
        stay.push(create_past_job(&mut on, "kept_long", 240, plainly).await);
        // Jobs with payloads of a later version belong to the same type.
        stay.push(create_past_job(&mut on, "kept_long@2", 240, plainly).await);
        stay.push(create_past_job(&mut on, "kept_long@2", 480, plainly).await);
        go.push(create_past_job(&mut on, "kept_briefly@2", 2, plainly).await);
        go.push(create_past_job(&mut on, "kept_long", 960, plainly).await);
        go.push(create_past_job(&mut on, "kept_plainly", 240, plainly).await);
        go.push(create_past_job(&mut on, "kept_briefly", 240, plainly).await);
        // No day partition covers the next three jobs.
        stay.push(create_past_job(&mut on, "kept_long", 480, plainly).await);
        go.push(create_past_job(&mut on, "kept_long", 800, plainly).await);
        go.push(create_past_job(&mut on, "kept_plainly", 480, plainly).await);
        go.push(create_past_job(&mut on, "kept_briefly", 2, plainly).await);
        stay.push(create_past_job(&mut on, "kept_plainly", 2, plainly).await);
        stay.push(create_past_job(&mut on, "kept_briefly", 0, plainly).await);
    }
    db.run_while(worker(&db), async {
        // The query does not read the day partitions, because a read would delay the drop of a partition.
        eventually("the old days are gone", async || {
            db.count(
                "select count(*) from pg_class where relname ~ '^job_[0-9]{8}$' and right(relname, 8)::date < now() - interval '9 days'",
            )
            .await
                == 0
        })
        .await;
    })
    .await;
    for id in stay {
        assert!(is_there(&db, id).await, "{id}");
    }
    for id in go {
        assert!(!is_there(&db, id).await, "{id}");
    }
    db.finish().await;
}

#[tokio::test]
async fn recently_finished_jobs_outlive_their_day_beside_a_type_with_a_longer_retention() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    make_past_day(&db, 10).await;
    let lately = [create_past_job(&mut on, "kept_plainly", 240, false).await, create_past_job(&mut on, "kept_plainly", 240, true).await];
    sqlx::raw_sql("update queue.done set finished_at = now(); update queue.done_many set finished_at = now()")
        .execute(&mut on)
        .await
        .unwrap();
    let long = [create_past_job(&mut on, "kept_long", 240, false).await, create_past_job(&mut on, "kept_long", 240, true).await];
    let finished = create_past_job(&mut on, "kept_plainly", 240, false).await;
    sqlx::query("insert into queue.retention (job_type, history) values ('kept_long', '30 days')").execute(&mut on).await.unwrap();
    let day: Option<String> = sqlx::query_scalar("select queue.drop_day('7 days')::text").fetch_one(&mut on).await.unwrap();
    assert!(day.is_some());
    for id in lately.into_iter().chain(long) {
        assert!(is_there(&db, id).await, "{id}");
    }
    assert!(!is_there(&db, finished).await);
    db.finish().await;
}

#[tokio::test]
async fn the_retention_of_a_type_is_written_at_the_start_and_removed_when_it_no_longer_has_one() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    sqlx::query("insert into queue.retention (job_type, history) values ('kept_plainly', '1 day'), ('kept_long', '2 days'), ('of_others', '3 days')")
        .execute(&mut on)
        .await
        .unwrap();
    db.run_while(worker(&db), async {
        eventually("it is written", async || {
            let types: Vec<String> =
                sqlx::query_scalar("select job_type from queue.retention order by 1").fetch_all(&db.pool).await.unwrap();
            types.iter().map(String::as_str).eq(["kept_briefly", "kept_long", "of_others"])
        })
        .await;
    })
    .await;
    assert_eq!(
        db.count("select (extract(epoch from history) / 3600)::bigint from queue.retention where job_type = 'kept_long'").await,
        720
    );
    db.finish().await;
}

#[tokio::test]
async fn dead_letters_are_kept_forever_by_default() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let mut dead = Vec::new();
    for hours in [1, 48] {
        let id = create_past_job(&mut on, "kept_plainly", hours, false).await;
        sqlx::query("with d as (delete from queue.done where id = $1 returning id, finished_at)
            insert into queue.dead (id, died_at, lane, attempts, crashes, error) select d.id, d.finished_at, j.lane, 1, 0, 'x' from d join queue.job j using (id)")
            .bind(id)
            .execute(&mut on)
            .await
            .unwrap();
        dead.push(id);
    }
    let pruned = |days: u64| {
        let mut config = Config::default();
        config.dead_retention = (days > 0).then(|| Duration::from_secs(days * 86_400));
        Worker::new(db.pool.clone()).config(config).register::<Plain>()
    };
    db.run_while(pruned(0), async {
        eventually("it has pruned", async || db.count("select count(*) from queue.worker").await == 1).await;
    })
    .await;
    assert!(is_there(&db, dead[1]).await);
    db.run_while(pruned(1), async {
        eventually("the old one is gone", async || !is_there(&db, dead[1]).await).await;
    })
    .await;
    assert!(is_there(&db, dead[0]).await);
    let left = sqlx::query_scalar::<_, i64>(Store::default().sql("select count(*) from queue.job")).fetch_one(&mut on).await.unwrap();
    assert_eq!(left, 1);
    db.finish().await;
}
