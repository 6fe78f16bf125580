//! Tests locked uniqueness keys and locked rows of keys. Other sessions wait for the locks or skip the rows.

use std::time::Duration;

use queue_core::{EnqueueOutcome, Job as _, OnConflict, options::While};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tests::{Sql as _, TestDb, eventually, operate};

use super::{end, say};

#[tokio::test]
async fn a_row_that_is_deleted_while_a_producer_waits_for_it_is_written_again() {
    let (db, mut on, mut housekeeper) = TestDb::with_connections().await;
    let enqueue = || say("1").enqueue(&db.pool).unique("key");
    let first = enqueue().await.unwrap();
    end(&mut on, "plain").await;
    let mut forgetting = housekeeper.begin().await.unwrap();
    forgetting.execute("select from queue.unique_key for update").await.unwrap();
    let (second, ()) = tokio::join!(enqueue(), async {
        db.until_waiting(1).await;
        forgetting.execute("delete from queue.unique_key").await.unwrap();
        forgetting.commit().await.unwrap();
    });
    let second = second.unwrap();
    assert_eq!(second.outcome(), EnqueueOutcome::New);
    assert_ne!(second.id(), first.id());
    let third = enqueue().await.unwrap();
    assert_eq!((third.id(), third.outcome()), (second.id(), EnqueueOutcome::Kept), "the key is held again");
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_was_found_scheduled_or_blocked_stays_so_until_the_transaction_that_found_it_ends() {
    let (db, mut on) = TestDb::with_connection().await;
    let enqueue = || say("1").enqueue(&db.pool).unique("key").unique_while(While::Queued);
    let first = enqueue().after(Duration::from_hours(1)).await.unwrap();
    on.run("update queue.scheduled set run_at = now() - interval '1 second'").await;
    let mut tx = db.pool.begin().await.unwrap();
    assert_eq!(say("2").enqueue(&mut tx).unique("key").await.unwrap().id(), first.id());
    assert_eq!(operate::promote(&mut on, 10).await.unwrap(), 0);
    tx.commit().await.unwrap();
    assert_eq!(operate::promote(&mut on, 10).await.unwrap(), 1);
    end(&mut on, "plain").await;

    say("3").enqueue(&db.pool).key("a").await.unwrap();
    let behind = enqueue().key("a").await.unwrap();
    end(&mut on, "plain").await;
    let mut tx = db.pool.begin().await.unwrap();
    assert_eq!(say("4").enqueue(&mut tx).unique("key").await.unwrap().id(), behind.id());
    assert_eq!(operate::unblock(&mut on).await.unwrap(), 0);
    tx.commit().await.unwrap();
    assert_eq!(operate::unblock(&mut on).await.unwrap(), 1);
    db.finish().await;
}

#[tokio::test]
async fn a_replaced_or_postponed_job_keeps_its_place_its_attempts_and_its_crashes() {
    let db = TestDb::new().await;
    let enqueue = |on_conflict| say("1").enqueue(&db.pool).unique("key").on_conflict(on_conflict);
    let first = enqueue(OnConflict::Keep).await.unwrap();
    let tried = "update queue.ready set seq = queue.next_id(), attempts = 2, crashes = 1 returning seq";
    let place = db.count(tried).await;
    let replaced = enqueue(OnConflict::Replace).after(Duration::from_hours(1)).await.unwrap();
    assert_eq!(replaced.outcome(), EnqueueOutcome::Replaced, "its time is unchanged");
    let same = "select count(*) from queue.ready where attempts = 2 and crashes = 1 and id <> seq and seq =";
    assert_eq!(db.count(&format!("{same} {place}")).await, 1);
    let later = enqueue(OnConflict::Debounce).after(Duration::from_hours(1)).await.unwrap();
    assert_eq!((later.id(), later.outcome()), (first.id(), EnqueueOutcome::Debounced));
    assert_eq!(db.count("select count(*) from queue.scheduled where attempts = 2 and crashes = 1").await, 1);
    let later = enqueue(OnConflict::Debounce).after(Duration::from_hours(2)).await.unwrap();
    assert_eq!((later.id(), later.outcome()), (first.id(), EnqueueOutcome::Debounced));
    let again = "select count(*) from queue.scheduled where attempts = 2 and crashes = 1 and run_at > now() + interval '90 minutes'";
    assert_eq!(db.count(again).await, 1);
    db.finish().await;
}

#[tokio::test]
async fn the_tables_of_keys_refuse_rows_that_our_statements_never_write() {
    let (db, mut on) = TestDb::with_connection().await;
    for (constraint, row) in [
        ("unique_key_pkey", "unique_key select h, 1, 'live', null from gen_random_uuid() h, generate_series(1, 2)"),
        ("unique_key_held_is_known", "unique_key values (gen_random_uuid(), 1, 'dead', null)"),
        ("unique_key_has_its_time", "unique_key values (gen_random_uuid(), 1, 'until', null)"),
        ("unique_key_has_its_time", "unique_key values (gen_random_uuid(), 1, 'live', now())"),
        ("blocked_pkey", "blocked values (1, 1, 1, 1), (1, 1, 2, 1)"),
        ("active_key_is_one", "active_key values (1, 1, 1), (1, 2, 2)"),
        ("key_hint_order", "key_hint (seq, key) values (1, 1), (1, 2)"),
    ] {
        let error = on.execute(AssertSqlSafe(format!("insert into queue.{row}"))).await.unwrap_err();
        assert!(error.to_string().contains(constraint), "{constraint}: {error}");
    }
    db.finish().await;
}

/// Regression test: the store has more keys than one round of housekeeping used to delete. The next round starts a minute later.
#[tokio::test]
#[ignore = "deep"]
async fn keys_are_deleted_as_fast_as_they_are_created() {
    let db = TestDb::new().await;
    db.run("with job as materialized (select queue.next_id() as id, n from generate_series(1, 150000) n),
           stored as (insert into queue.job (id, lane, max_attempts, payload)
             select id, queue.ensure_lane('default', 'do', 100::smallint, false), 3, '{}' from job),
           over as (insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
             select min(id), max(id), now(), 1, array_agg(id order by id) from job group by n / 100, id >> 33, (id >> 20) / 86400000)
         insert into queue.unique_key (hash, id, held) select encode(substring(sha256(n::text::bytea), 1, 16), 'hex')::uuid, id, 'live' from job;
         analyze").await;
    db.run_while(db.worker(), async {
        eventually("they are forgotten", async || db.count("select count(*) from queue.unique_key").await < 1000).await;
    })
    .await;
    db.finish().await;
}
