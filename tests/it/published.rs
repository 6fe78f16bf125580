//! Tests the store under a publication for all tables, as used by logical replication. If a published table has no replica identity, the
//! server rejects updates and deletes.

use std::time::Duration;

use queue_core::{Job as _, JobRef, JobState, Queue};
use sqlx::{Connection as _, PgConnection};
use tests::{
    Act, Do, TestDb, operate,
    protocol::{VERDICTS, claim, flush, note, recover, register, settle, silence},
};

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn publish(db: &TestDb) {
    sqlx::raw_sql("create publication everything for all tables").execute(&db.pool).await.unwrap();
}

#[tokio::test]
async fn f69_under_a_publication_for_all_tables_every_verdict_is_accepted() {
    let db = TestDb::new().await;
    let mut c = connect(&db).await;
    publish(&db).await;
    let worker = register(&mut c).await.unwrap();
    for verdict in VERDICTS {
        operate::enqueue(&mut c, "default", 100, false).await.unwrap();
        let lease = claim(&mut c, worker, 1).await.unwrap();
        assert_eq!(settle(&mut c, &lease.all(verdict)).await.unwrap(), [], "{verdict}");
    }
    let mut jobs = Vec::new();
    for act in [Act::Ok(String::new()), Act::FailUntil(2), Act::Terminal("no".into())] {
        jobs.push(Do { act }.enqueue(&db.pool).await.unwrap().id());
    }
    db.run_while(db.worker(), async {
        for (job, state) in jobs.iter().zip([JobState::Completed, JobState::Completed, JobState::Dead]) {
            db.until(*job, state).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn under_a_publication_for_all_tables_operators_and_housekeeping_work() {
    let db = TestDb::new().await;
    let mut c = connect(&db).await;
    publish(&db).await;
    let worker = register(&mut c).await.unwrap();
    let mut jobs = Vec::new();
    for _ in 0..6 {
        jobs.push(operate::enqueue(&mut c, "default", 100, false).await.unwrap());
    }
    let lease = claim(&mut c, worker, 6).await.unwrap();
    assert_eq!(flush(&mut c, &[], &[lease.token]).await.unwrap(), []);
    for job in &jobs[..2] {
        assert!(operate::reopen(&mut c, *job).await.unwrap(), "out of the middle of a row of history");
    }
    assert_eq!(operate::cancel(&mut c, &jobs[..1]).await.unwrap(), jobs[..1]);
    Queue::on(&mut c).set_capacity("default", Some(100)).await.unwrap();
    Queue::on(&mut c).set_capacity("default", None).await.unwrap();
    assert_eq!(operate::set_priority(&mut c, &jobs[1..2], 7).await.unwrap(), jobs[1..2]);
    let lease = claim(&mut c, worker, 6).await.unwrap();
    assert!(note(&mut c, lease.token, lease.jobs[0], "here").await.unwrap());
    silence(&mut c, worker).await.unwrap();
    assert_eq!(recover(&mut c).await.unwrap(), 1);
    let again = register(&mut c).await.unwrap();
    let lease = claim(&mut c, again, 6).await.unwrap();
    assert_eq!(settle(&mut c, &lease.all("dead")).await.unwrap(), []);
    JobRef::from_id(jobs[1]).requeue(&mut c).await.unwrap();
    let lease = claim(&mut c, again, 6).await.unwrap();
    assert_eq!(settle(&mut c, &lease.all("dead")).await.unwrap(), []);
    assert_eq!(operate::discard(&mut c, &jobs[1..2]).await.unwrap(), jobs[1..2]);
    Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).key("a").unique("u").await.unwrap();
    Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).key("a").after(Duration::from_hours(1)).await.unwrap();
    assert_eq!(operate::unblock(&mut c).await.unwrap(), 0);
    operate::keep_types(&mut c, 1.0).await.unwrap();
    for days in [operate::prune_done(&mut c).await, operate::prune_kept(&mut c).await, operate::prune_early(&mut c).await] {
        days.unwrap();
    }
    operate::prune_dead(&mut c).await.unwrap();
    operate::prune_workers(&mut c).await.unwrap();
    sqlx::raw_sql("select queue.forget_keys(100)").execute(&mut c).await.unwrap();
    while operate::drop_day(&mut c).await.unwrap() {}
    operate::add_days(&mut c).await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn every_table_and_every_day_has_a_replica_identity() {
    let db = TestDb::new().await;
    sqlx::query("select queue.add_days(9)").execute(&db.pool).await.unwrap();
    let nameless = "select coalesce(string_agg(c.relname, ', '), '') from pg_class c
      where c.relnamespace = 'queue'::regnamespace and c.relkind in ('r', 'p')
        and c.relreplident <> 'f' and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)";
    let nameless: String = sqlx::query_scalar(nameless).fetch_one(&db.pool).await.unwrap();
    assert_eq!(nameless, "");
    db.finish().await;
}
