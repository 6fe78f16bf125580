//! Tests that a job operation changes only the jobs that it names, in every state of a job. `held::jobs` tests that an operation skips
//! jobs that other sessions have locked.

use std::time::Duration;

use queue_core::{Job as _, JobId};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::{
    Act, Do, TestDb, operate,
    protocol::{claim, contents, register, settle},
};

use super::{MIDNIGHT, connect, enqueue, leased};

const HOUR: Duration = Duration::from_hours(1);

/// Situations in which an operation can find a job, in the order in which [`spread`] creates them.
const PLACES: [&str; 10] = ["over", "dead", "running", "moved", "given back", "recovered", "ready", "scheduled", "head", "blocked"];

/// Creates two jobs in different queues for each of [`PLACES`]. The jobs of `running`, `head` and `blocked` have ordering keys.
async fn spread(db: &TestDb, on: &mut PgConnection) -> Vec<[JobId; 2]> {
    let (mut jobs, worker) = (Vec::new(), register(on).await.unwrap());
    for place in PLACES {
        let mut two = [JobId(0); 2];
        for (id, queue) in two.iter_mut().zip(["a", "b"]) {
            let job = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).queue(queue);
            let handle = match place {
                "running" => job.key("held").await,
                "head" | "blocked" => job.key("free").await,
                "scheduled" => job.after(HOUR).await,
                _ => job.await,
            };
            *id = handle.unwrap().id();
        }
        let solo = "lane = (select queue.ensure_lane(l.queue, 'do', 100::smallint, true) from queue.lane l where l.lane = r.lane limit 1)";
        let put = match place {
            "over" => Some("complete"),
            "dead" => Some("dead"),
            _ => None,
        };
        if put.is_some() || place == "running" {
            let lease = claim(on, worker, 10).await.unwrap();
            assert_eq!(lease.ids(), two);
            if let Some(verdict) = put {
                assert_eq!(settle(on, &lease.all(verdict)).await.unwrap(), []);
            }
        }
        let moved = match place {
            "moved" => "seq = queue.next_id()",
            "given back" => solo,
            "recovered" => &format!("seq = queue.next_id(), {solo}"),
            _ => "crashes = 1",
        };
        let text = format!("update queue.ready r set {moved} where id = any ($1)");
        sqlx::query(AssertSqlSafe(text)).bind(two).execute(&mut *on).await.unwrap();
        jobs.push(two);
    }
    let tried = "update queue.ready set attempts = 2, crashes = 1; update queue.scheduled set attempts = 2, crashes = 1;
      insert into queue.failure (id, attempt, at, ran_ms, error) select id, 1, now(), 1, 'once' from queue.job";
    sqlx::raw_sql(tried).execute(on).await.unwrap();
    jobs
}

const ACTS: [&str; 7] = ["cancel", "put off", "run now", "rank", "requeue", "discard", "reopen"];

/// Runs an operation by name. Returns the changed jobs.
async fn act(on: &mut PgConnection, what: &str, jobs: &[JobId]) -> Vec<JobId> {
    let done = match what {
        "cancel" => operate::cancel(on, jobs).await,
        "put off" => operate::reschedule(on, jobs).await,
        "run now" => operate::run_now(on, jobs).await,
        "rank" => operate::set_priority(on, jobs, 7).await,
        "discard" => operate::discard(on, jobs).await,
        "requeue" => operate::requeue(on, jobs).await,
        _ => {
            let mut done = Vec::new();
            for job in jobs {
                if operate::reopen(on, *job).await.unwrap() {
                    done.push(*job);
                }
            }
            Ok(done)
        }
    };
    done.unwrap()
}

/// Returns the expected state and priority of a job after an operation, and whether the job is at the end of its lane. Returns `None` if
/// the operation does not change the job.
fn becomes(what: &str, place: &str) -> Option<(&'static str, i16, bool)> {
    match (what, place) {
        ("discard", "dead") => Some(("gone", 0, false)),
        ("requeue", "dead") | ("reopen", "over") | ("run now", "scheduled") => Some(("ready", 100, true)),
        ("discard" | "requeue" | "reopen" | "run now", _) | (_, "over" | "dead" | "running") => None,
        ("cancel", _) => Some(("cancelled", 100, false)),
        (_, "blocked") => None,
        ("put off", _) => Some(("scheduled", 100, false)),
        (_, "scheduled") => Some(("scheduled", 7, false)),
        _ => Some(("ready", 7, false)),
    }
}

/// Query for a job's state, priority, attempts and crashes. Also returns whether the job is at the end of its lane, and whether the lane is
/// for quarantined jobs (`solo`).
const STATE: &str =
    "select j.state, j.priority, exists (select from queue.ready r where r.id = j.id and r.seq <> r.id), j.attempts, j.crashes,
    coalesce((select bool_or(l.solo) from (select id, lane from queue.ready union all select id, lane from queue.scheduled) e
      join queue.lane l on l.lane = e.lane where e.id = j.id), false)
  from queue.jobs j where j.id = $1";

/// Query for the number of entries in a lane that is neither the job's own lane nor the corresponding lane for quarantined jobs.
const IN_OTHER_LANES: &str = "select count(*) from (select id, lane from queue.ready union all select id, lane from queue.scheduled) e
  join queue.job j on j.id = e.id join queue.lane l on l.lane = e.lane where queue.lane_id(l.queue, l.job_type, l.priority, false) <> j.lane";

#[tokio::test]
async fn an_operation_changes_its_job_in_every_state_and_no_other() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let jobs = spread(&db, &mut on).await;
    // Store each lane twice, as happens when producers create a lane concurrently.
    sqlx::raw_sql("insert into queue.lane select * from queue.lane").execute(&mut on).await.unwrap();
    let before = contents(&mut on).await.unwrap();
    for what in ACTS {
        let (mut unfit, mut tx) = (vec![JobId(7)], on.begin().await.unwrap());
        unfit.extend(PLACES.iter().zip(&jobs).filter(|(place, _)| becomes(what, place).is_none()).map(|(_, two)| two[0]));
        assert_eq!(act(&mut tx, what, &unfit).await, [], "{what}");
        assert_eq!(contents(&mut tx).await.unwrap(), before, "{what}");
        tx.rollback().await.unwrap();
        for (place, [job, _]) in PLACES.iter().zip(&jobs) {
            let Some(expected) = becomes(what, place) else { continue };
            let mut tx = on.begin().await.unwrap();
            assert_eq!(act(&mut tx, what, &[*job]).await, [*job], "{what}, {place}");
            let after = contents(&mut tx).await.unwrap();
            let of_others =
                |text: &str| text.lines().filter(|line| !line.contains(&job.to_string())).map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(of_others(&after), of_others(&before), "{what}, {place}");
            let found: Option<(String, i16, bool, i16, i16, bool)> =
                sqlx::query_as(STATE).bind(job).fetch_optional(&mut *tx).await.unwrap();
            let (state, priority, last) = expected;
            let (attempts, crashes, solo) = match (what, *place) {
                (_, "over" | "dead" | "blocked") => (0, 0, false),
                ("cancel", _) => (2, 0, false),
                (_, place) => (2, 1, ["given back", "recovered"].contains(&place)),
            };
            match found {
                None => assert!(state == "gone" && !after.contains(&job.to_string()), "{what}, {place}"),
                Some(found) => assert_eq!(found, (state.to_owned(), priority, last, attempts, crashes, solo), "{what}, {place}"),
            }
            let astray: i64 = sqlx::query_scalar(IN_OTHER_LANES).fetch_one(&mut *tx).await.unwrap();
            assert_eq!(astray, 0, "{what}, {place}");
            tx.rollback().await.unwrap();
        }
    }
    let all = jobs.concat();
    for (what, changed) in [("run now", 2), ("rank", 12), ("put off", 12), ("requeue", 2), ("reopen", 2), ("cancel", 18)] {
        assert_eq!(act(&mut on, what, &all).await.len(), changed, "{what}: all together");
        assert_eq!(db.count(IN_OTHER_LANES).await, 0, "{what}: each in a lane of its own queue");
        db.check_invariant().await;
    }
    db.finish().await;
}

#[tokio::test]
async fn a_job_is_requeued_from_a_row_of_history_that_keeps_the_others() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let of = operate::ensure_lanes(&mut on, &[("a", 100)]).await.unwrap();
    // The id ranges of the first two history rows overlap. The third row contains a single job, whose id is within the first range.
    let rows = [&[1, 3, 5, 9][..], &[2, 4, 6], &[7]].map(|row| row.iter().map(|n| MIDNIGHT + n).collect::<Vec<_>>());
    for row in &rows {
        let lease = leased(&mut on, row, &of).await;
        assert_eq!(settle(&mut on, &lease.all("plain")).await.unwrap(), []);
    }
    let all: Vec<i64> = rows.concat();
    let waiting = leased(&mut on, &[MIDNIGHT + 8], &of).await;
    sqlx::query("insert into queue.progress (id, attempt) select unnest($1::bigint[]), 1").bind(&all).execute(&mut on).await.unwrap();
    for id in &all {
        let mut tx = on.begin().await.unwrap();
        assert_eq!(act(&mut tx, "reopen", &[JobId(*id)]).await, [JobId(*id)]);
        let left: Vec<Vec<i64>> =
            sqlx::query_scalar("select ids from queue.done_many order by first_id").fetch_all(&mut *tx).await.unwrap();
        let mut expected: Vec<Vec<i64>> = rows.iter().map(|row| row.iter().filter(|n| *n != id).copied().collect()).collect();
        expected.retain(|row: &Vec<i64>| !row.is_empty());
        expected.sort_unstable();
        assert_eq!(left, expected);
        let spans = "select count(*) from queue.done_many where first_id <> ids[1] or last_id <> ids[cardinality(ids)]";
        let wrong: i64 = sqlx::query_scalar(spans).fetch_one(&mut *tx).await.unwrap();
        let found: i64 = sqlx::query_scalar("select count(*) from queue.progress").fetch_one(&mut *tx).await.unwrap();
        assert_eq!((wrong, found), (0, i64::try_from(all.len() - 1).unwrap()));
        let places: Vec<(i64, bool)> = sqlx::query_as("select id, seq <> id from queue.ready").fetch_all(&mut *tx).await.unwrap();
        assert_eq!(places, [(*id, true)]);
        assert_eq!(act(&mut tx, "reopen", &[JobId(*id), waiting.jobs[0].id]).await, []);
        tx.rollback().await.unwrap();
    }
    assert_eq!(settle(&mut on, &waiting.all("retry")).await.unwrap(), []);
    db.finish().await;
}

#[tokio::test]
async fn jobs_that_are_run_now_are_queued_in_the_order_of_their_times_behind_all_others() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let lane = operate::ensure_lanes(&mut on, &[("default", 100)]).await.unwrap()[0];
    let jobs = operate::insert_all(&mut on, &[(lane, true); 3]).await.unwrap();
    for (minutes, job) in (1..).zip(&jobs) {
        let sooner = sqlx::query("update queue.scheduled set run_at = now() + interval '1 hour' - $1 * interval '1 minute' where id = $2");
        sooner.bind(f64::from(minutes)).bind(job).execute(&mut on).await.unwrap();
    }
    let first = enqueue(&mut on, &["default"]).await[0];
    assert_eq!(operate::run_now(&mut on, &jobs).await.unwrap().len(), 3);
    let places: Vec<JobId> = sqlx::query_scalar("select id from queue.ready order by seq").fetch_all(&mut on).await.unwrap();
    assert_eq!(places, [first, jobs[2], jobs[1], jobs[0]]);
    db.finish().await;
}

#[tokio::test]
async fn a_cancelling_job_is_listed_once() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let jobs = enqueue(&mut on, &["default"; 3]).await;
    let worker = register(&mut on).await.unwrap();
    for most in [1, 2] {
        claim(&mut on, worker, most).await.unwrap();
    }
    let named = [jobs[0], jobs[1]];
    assert_eq!(operate::cancel_running(&mut on, &named).await.unwrap().len(), 2);
    let marked = "select array(select unnest(cancelling) from queue.lease order by 1)";
    let found: Vec<JobId> = sqlx::query_scalar(marked).fetch_one(&mut on).await.unwrap();
    assert_eq!(found, named);
    assert_eq!(operate::cancel_running(&mut on, &jobs[2..]).await.unwrap(), jobs[2..]);
    let found: Vec<JobId> = sqlx::query_scalar(marked).fetch_one(&mut on).await.unwrap();
    assert_eq!(found, jobs);
    db.finish().await;
}
