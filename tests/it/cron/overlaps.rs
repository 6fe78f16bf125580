//! Tests ticks that overlap with unfinished jobs from earlier ticks or manual runs of the same schedule.

use queue_core::{JobId, JobRef, JobState, Queue, schedule::Overlap};
use sqlx::PgConnection;
use tests::{Act, Do, TestDb};

use super::{STORE, each_second, fires};

/// Creates schedules whose jobs must not overlap. The next tick of each schedule was due 30 seconds ago.
async fn make(db: &TestDb, names: &[&str]) {
    for name in names {
        Queue::new(&db.pool).store(STORE()).schedule(name).create(&each_second().overlap(Overlap::Skip)).await.unwrap();
    }
    sqlx::query("update queue.schedule set next_at = date_trunc('second', now()) - interval '30 s'").execute(&db.pool).await.unwrap();
}

/// Fires the current tick of a schedule and plans the next tick a second later. Returns the outcome.
async fn fire(on: &mut PgConnection, name: &str) -> String {
    let fire = "select f.outcome from queue.schedule s,
      queue.fire_ticks(s.name, s.definition, s.next_at, array[s.next_at], 'enqueue', s.next_at + interval '1 s', null) f where s.name = $1";
    sqlx::query_scalar(fire).bind(name).fetch_one(on).await.unwrap()
}

async fn end(db: &TestDb, job: JobId) {
    JobRef::from_id(job).cancel(&db.pool).await.unwrap();
}

#[tokio::test]
async fn a_tick_sees_the_job_of_the_previous_tick_despite_manual_runs() {
    let db = TestDb::new().await;
    make(&db, &["a"]).await;
    let mut on = db.pool.acquire().await.unwrap();
    assert_eq!(fire(&mut on, "a").await, "enqueued");
    let first = fires(&db, "a").await[0].job.unwrap();
    for _ in 0..12 {
        let by_hand = Queue::new(&db.pool).store(STORE()).schedule("a").run_now().await.unwrap();
        end(&db, by_hand).await;
    }
    assert_eq!(fire(&mut on, "a").await, "overlapped");
    end(&db, first).await;
    assert_eq!(fire(&mut on, "a").await, "enqueued");
    drop(on);
    db.finish().await;
}

#[tokio::test]
async fn jobs_of_a_later_release_do_not_overlap() {
    let db = TestDb::new().await;
    make(&db, &["a"]).await;
    let mut on = db.pool.acquire().await.unwrap();
    assert_eq!(fire(&mut on, "a").await, "enqueued");
    assert_eq!(fire(&mut on, "a").await, "overlapped");
    let newer = "update queue.fire set job = queue.enqueue('do', '{}', '{\"version\": 2}') where job is not null";
    sqlx::query(newer).execute(&mut *on).await.unwrap();
    let overlaps: (bool, bool) =
        sqlx::query_as("select queue.overlaps_with('a', '{}') is not null, queue.overlaps_with('a', '{\"version\": 2}') is not null")
            .fetch_one(&mut *on)
            .await
            .unwrap();
    assert_eq!(overlaps, (false, true));
    // The recorded ticks now refer to jobs that no tick has created. The final check of the store would report this, so the ticks are
    // deleted.
    sqlx::query("delete from queue.fire").execute(&mut *on).await.unwrap();
    drop(on);
    db.finish().await;
}

#[tokio::test]
async fn a_tick_has_no_job_while_a_manual_run_is_unfinished_and_a_manual_run_never_waits() {
    let db = TestDb::new().await;
    make(&db, &["a", "b"]).await;
    let mut on = db.pool.acquire().await.unwrap();
    let by_hand = Queue::new(&db.pool).store(STORE()).schedule("a").run_now().await.unwrap();
    assert_eq!(fire(&mut on, "a").await, "overlapped");
    assert_eq!(fire(&mut on, "b").await, "enqueued", "it does not count for another schedule");
    let another = Queue::new(&db.pool).store(STORE()).schedule("a").run_now().await.unwrap();
    for job in [by_hand, another] {
        end(&db, job).await;
    }
    assert_eq!(fire(&mut on, "a").await, "enqueued");
    drop(on);
    db.finish().await;
}

#[tokio::test]
async fn a_tick_sees_the_last_of_many_ticks() {
    let db = TestDb::new().await;
    make(&db, &["a"]).await;
    let mut on = db.pool.acquire().await.unwrap();
    for _ in 0..11 {
        assert_eq!(fire(&mut on, "a").await, "enqueued");
        let last = fires(&db, "a").await.last().unwrap().job.unwrap();
        end(&db, last).await;
    }
    assert_eq!(fire(&mut on, "a").await, "enqueued");
    assert_eq!(fire(&mut on, "a").await, "overlapped");
    drop(on);
    db.finish().await;
}

#[tokio::test]
async fn sequential_jobs_use_the_key_of_the_schedule_unless_they_have_their_own() {
    let db = TestDb::new().await;
    let mut on = db.pool.acquire().await.unwrap();
    queue_core::Job::enqueue(super::quick(), &db.pool).key("mine").await.unwrap();
    for (name, own) in [("a", None), ("b", Some("mine"))] {
        let schedule = queue_core::schedule::Schedule::every(std::time::Duration::from_secs(1)).overlap(Overlap::Queue);
        let schedule = schedule.job_with(&super::quick(), |options| {
            if let Some(key) = own {
                options.key(key);
            }
        });
        Queue::new(&db.pool).store(STORE()).schedule(name).create(&schedule).await.unwrap();
        sqlx::query("update queue.schedule set next_at = now() - interval '1 s' where name = $1")
            .bind(name)
            .execute(&mut *on)
            .await
            .unwrap();
        assert_eq!(fire(&mut on, name).await, "enqueued");
        let blocked = "select count(*) from queue.fire f join queue.blocked b on b.id = f.job where f.name = $1";
        let blocked: i64 = sqlx::query_scalar(blocked).bind(name).fetch_one(&mut *on).await.unwrap();
        assert_eq!(blocked, i64::from(own.is_some()), "{name}");
    }
    drop(on);
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_blocks_its_schedule_is_named_and_can_be_ended_by_another_payload() {
    let db = TestDb::new().await;
    let mut on = db.pool.acquire().await.unwrap();
    let made = |payload: &str, supersede: bool| {
        let schedule = each_second().overlap(Overlap::Skip).job(&Do { act: Act::Fail(payload.to_owned()) });
        if supersede { schedule.supersede() } else { schedule }
    };
    Queue::new(&db.pool).store(STORE()).schedule("a").create(&made("old", false)).await.unwrap();
    sqlx::query("update queue.schedule set next_at = date_trunc('second', now()) - interval '30 s'").execute(&db.pool).await.unwrap();
    assert_eq!(fire(&mut on, "a").await, "enqueued");
    let first = fires(&db, "a").await[0].clone();
    let job = first.job.unwrap();
    let fails = "with claimed as (delete from queue.ready where id = $1 returning id, lane)
      insert into queue.scheduled (run_at, id, lane, attempts) select now() + interval '6 h', id, lane, 7 from claimed";
    sqlx::query(fails).bind(job).execute(&db.pool).await.unwrap();
    assert_eq!([fire(&mut on, "a").await, fire(&mut on, "a").await], ["overlapped", "overlapped"]);
    let last = Queue::new(&db.pool).store(STORE()).schedule("a").find().await.unwrap().last.unwrap();
    let named = format!("job {job} of {} is waiting for a retry after 7 attempts", first.tick.format("%FT%TZ"));
    assert_eq!((last.outcome.as_str(), last.job, last.error), ("overlapped", None, Some(named)));
    let why = Queue::new(&db.pool).job(job).why().await.unwrap();
    assert!(why.first().message.contains("its schedule a has skipped its ticks since "), "{:?}", why.first());
    assert!(why.first().facts["overlapped_since"].is_string(), "{:?}", why.first());
    for (payload, supersede, state) in
        [("old", true, JobState::Scheduled), ("new", false, JobState::Scheduled), ("newer", true, JobState::Cancelled)]
    {
        Queue::new(&db.pool).store(STORE()).schedule("a").create(&made(payload, supersede)).await.unwrap();
        assert_eq!(db.state(job).await, Some(state), "{payload}");
    }
    assert_eq!(fire(&mut on, "a").await, "enqueued");
    let running = fires(&db, "a").await.last().unwrap().job.unwrap();
    Queue::new(&db.pool).store(STORE()).schedule("a").create(&made("newest", true)).await.unwrap();
    assert_eq!(db.state(running).await, Some(JobState::Ready), "it has not failed");
    let wrong = sqlx::query(r#"select queue.schedule('b', 'do', '{}', '{"every": 60, "supersede": "yes"}')"#).execute(&db.pool).await;
    assert!(wrong.unwrap_err().to_string().contains("the option supersede must be true or false"));
    drop(on);
    db.finish().await;
}
