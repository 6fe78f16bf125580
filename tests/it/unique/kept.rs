//! Tests uniqueness keys that are held until the history of their job is pruned.

use std::time::Duration;

use queue_core::{EnqueueOutcome, Job as _, JobHandle, OnConflict, job, options::While};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{
    Do, Sql as _, TestDb, operate,
    protocol::{VERDICTS, claim, register, settle},
};

use super::say;

/// Job that sends an invoice once.
#[job(send_only, unique(fields(number), while = kept))]
#[derive(Clone, Serialize, Deserialize)]
struct Invoice {
    number: u64,
}

async fn enqueue(on: &mut PgConnection, text: &str, on_conflict: OnConflict) -> JobHandle<Do> {
    say(text).enqueue(on).unique("key").unique_while(While::Kept).on_conflict(on_conflict).await.unwrap()
}

/// Deletes keys as housekeeping does, until none is left to delete. Returns the number of deleted keys.
async fn forget(on: &mut PgConnection) -> i32 {
    let mut all = 0;
    loop {
        let gone: i32 =
            sqlx::query_scalar(include_str!("../../../queue-worker/sql/forget_keys.sql")).bind(500).fetch_one(&mut *on).await.unwrap();
        if gone == 0 {
            return all;
        }
        all += gone;
    }
}

/// Ages all jobs by thirty days.
async fn days_pass(on: &mut PgConnection) {
    for (table, ids) in [
        ("job", "id = id - (30::bigint * 86400000 << 20)"),
        ("done", "id = id - (30::bigint * 86400000 << 20), finished_at = finished_at - interval '30 days'"),
        (
            "done_many",
            "first_id = first_id - (30::bigint * 86400000 << 20), last_id = last_id - (30::bigint * 86400000 << 20),
           ids = array(select u - (30::bigint * 86400000 << 20) from unnest(ids) u), finished_at = finished_at - interval '30 days'",
        ),
        ("unique_key", "id = id - (30::bigint * 86400000 << 20)"),
    ] {
        on.execute(sqlx::AssertSqlSafe(format!("update queue.{table} set {ids}"))).await.unwrap();
    }
}

#[tokio::test]
async fn a_key_is_held_in_the_states_of_its_kind_and_until_its_time() {
    let db = TestDb::new().await;
    for (held, states) in [
        ("live", "ready scheduled blocked running parked"),
        ("queued", "ready scheduled blocked"),
        ("kept", "ready scheduled blocked running parked completed dead cancelled expired"),
    ] {
        let all = "ready scheduled blocked running parked completed dead cancelled expired";
        let holds = format!("select count(*) from string_to_table('{all}', ' ') s where queue.holds('{held}', null, s)");
        let named = format!("{holds} and s = any (string_to_array('{states}', ' '))");
        let count = states.split(' ').count() as i64;
        assert_eq!((db.count(&holds).await, db.count(&named).await), (count, count), "{held}");
    }
    for (until, holds) in [("1 minute", 1), ("-1 minute", 0)] {
        let until = format!("select count(*) where queue.holds('until', now() + interval '{until}', null)");
        assert_eq!(db.count(&until).await, holds, "{until}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_key_is_held_for_its_period_however_its_job_ends() {
    let comes_back = |verdict| ["retry", "snooze", "release"].contains(&verdict);
    for held in [While::Live, While::Queued, While::Kept, While::For(Duration::from_hours(1))] {
        let (db, mut on, worker) = TestDb::with_worker().await;
        for verdict in VERDICTS {
            let case = format!("{held:?}, {verdict}");
            let enqueue = async |on: &mut PgConnection, on_conflict| {
                say("1").enqueue(on).unique(&case).unique_while(held).on_conflict(on_conflict).await.unwrap()
            };
            let first = enqueue(&mut on, OnConflict::Keep).await;
            let waiting = enqueue(&mut on, OnConflict::Keep).await;
            assert_eq!(
                (first.outcome(), waiting.outcome(), waiting.id()),
                (EnqueueOutcome::New, EnqueueOutcome::Kept, first.id()),
                "{case}"
            );
            let lease = claim(&mut on, worker, 1).await.unwrap();
            let conflicts = [OnConflict::Keep, OnConflict::Replace, OnConflict::Debounce];
            for on_conflict in conflicts.into_iter().filter(|_| held != While::Queued) {
                let running = enqueue(&mut on, on_conflict).await;
                assert_eq!((running.id(), running.outcome()), (first.id(), EnqueueOutcome::Kept), "{case}, it runs: {on_conflict:?}");
            }
            assert_eq!(settle(&mut on, &lease.all(verdict)).await.unwrap(), [], "{case}");
            let is_held = match held {
                While::Live | While::Queued => comes_back(verdict),
                While::Kept => verdict != "forget",
                _ => true,
            };
            if held == While::Kept {
                assert_eq!(forget(&mut on).await, i32::from(!is_held), "{case}: only of a job that nothing is known of");
            }
            for on_conflict in conflicts {
                let second = enqueue(&mut on, on_conflict).await;
                assert_eq!(second.id() == first.id(), is_held, "{case}, {on_conflict:?}");
                if is_held && !comes_back(verdict) {
                    assert_eq!(second.outcome(), EnqueueOutcome::Kept, "{case}, {on_conflict:?}: it has finished");
                }
            }
            if held == While::Live && !is_held {
                enqueue(&mut on, OnConflict::Keep).await.cancel(&mut on).await.unwrap();
                assert_eq!(enqueue(&mut on, OnConflict::Keep).await.outcome(), EnqueueOutcome::New, "{case}: cancelled");
            }
            let waits = "with ready as (delete from queue.ready returning id), later as (delete from queue.scheduled returning id)
                delete from queue.job where id in (select id from ready union all select id from later)";
            on.run(waits).await;
            forget(&mut on).await;
        }
        db.finish().await;
    }
}

#[tokio::test]
async fn a_kept_key_is_free_once_its_history_is_deleted_in_any_way() {
    let ends = |way| ["complete", "plain", "cancel"].map(|verdict| (way, verdict));
    for (way, verdict) in [ends("its day").as_slice(), &ends("without a day"), &[("discarded", "dead")]].concat() {
        let (db, mut on) = TestDb::with_connection().await;
        let first = enqueue(&mut on, "1", OnConflict::Keep).await;
        let worker = register(&mut on).await.unwrap();
        let lease = claim(&mut on, worker, 1).await.unwrap();
        settle(&mut on, &lease.all(verdict)).await.unwrap();
        assert_eq!(enqueue(&mut on, "2", OnConflict::Keep).await.id(), first.id(), "{way}, {verdict}");
        match way {
            "its day" => while operate::drop_day(&mut on).await.unwrap() {},
            "without a day" => {
                days_pass(&mut on).await;
                assert_eq!(
                    enqueue(&mut on, "3", OnConflict::Keep).await.outcome(),
                    EnqueueOutcome::Kept,
                    "{verdict}: old, and still known"
                );
                assert_eq!(operate::prune_done(&mut on).await.unwrap(), 1);
            }
            _ => first.discard(&mut on).await.unwrap(),
        }
        let mut tx = on.begin().await.unwrap();
        assert_eq!(enqueue(&mut tx, "4", OnConflict::Keep).await.outcome(), EnqueueOutcome::New, "{way}, {verdict}");
        tx.rollback().await.unwrap();
        assert_eq!(forget(&mut on).await, 1, "{way}, {verdict}");
        db.finish().await;
    }
}

#[tokio::test]
async fn a_kept_key_is_set_by_a_type_and_in_sql() {
    let (db, mut on) = TestDb::with_connection().await;
    let first = Invoice { number: 7 }.enqueue(&mut on).await.unwrap();
    first.cancel(&mut on).await.unwrap();
    let second = Invoice { number: 7 }.enqueue(&mut on).await.unwrap();
    assert_eq!((second.id(), second.outcome()), (first.id(), EnqueueOutcome::Kept));
    assert_eq!(Invoice { number: 8 }.enqueue(&mut on).await.unwrap().outcome(), EnqueueOutcome::New);
    // An operator can requeue the job explicitly.
    first.requeue(&mut on).await.unwrap();
    assert_eq!(Invoice { number: 7 }.enqueue(&mut on).await.unwrap().id(), first.id());

    let enqueue = r#"select outcome from queue.enqueue_with('paid', '{}', '{"unique_key": "7", "unique_while": "kept"}')"#;
    let mut outcome = async || on.one(enqueue).await;
    assert_eq!((outcome().await, outcome().await), ("enqueued".to_owned(), "kept".to_owned()));
    assert_eq!(db.count("select count(queue.cancel(id)) from queue.jobs where job_type = 'paid'").await, 1);
    assert_eq!(outcome().await, "kept");
    db.finish().await;
}

/// Four producers enqueue under one key while the key's job is running and finishing. No interleaving creates a second job.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn producers_at_the_end_of_a_job_enqueue_no_other() {
    let db = TestDb::new().await;
    let ask = async || {
        for n in 0..40 {
            say(&n.to_string()).enqueue(&db.pool).unique("key").unique_while(While::Kept).await.unwrap();
        }
    };
    db.run_while(db.worker(), async { tokio::join!(ask(), ask(), ask(), ask()) }).await;
    assert_eq!(db.count("select count(*) from queue.job").await, 1);
    db.finish().await;
}
