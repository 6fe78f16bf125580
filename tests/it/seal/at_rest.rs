//! Tests that no table of the store contains a sealed payload in plaintext, and that the handler receives the decrypted payload.

use queue_core::{Batch, Error, Job as _, JobHandle, JobId, JobState, PayloadError, Queue, Store, migrate, operate, options::Durability};
use queue_worker::Worker;
use tests::TestDb;

use super::{CARD, give, sealed, stored, tables_with};

sealed!(Charge, "seal_rest", "rest");
sealed!(Within, "seal_within", "rest", transactional);
sealed!(Other, "seal_store", "rest");

fn worker(db: &TestDb) -> Worker {
    Worker::new(db.pool.clone()).register::<Charge>().register::<Within>()
}

#[tokio::test]
#[ignore = "deep"]
async fn a_payload_is_nowhere_in_clear_text_wherever_its_job_goes() {
    give("rest", "2026-05", 1);
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    let mut ids: Vec<JobId> = vec![Charge::card().enqueue(&mut tx).await.unwrap().id()];
    tx.commit().await.unwrap();
    ids.push(Charge::card().enqueue(&db.pool).unless_at_capacity().await.unwrap().unwrap().id());
    ids.push(Charge::card().enqueue(&db.pool).durability(Durability::Relaxed).meta("shop", 7).key("k").await.unwrap().id());
    ids.push(Charge::card().enqueue(&db.pool).unique("u").await.unwrap().id());
    ids.push(Charge::card().enqueue(&db.pool).after(std::time::Duration::from_millis(20)).await.unwrap().id());
    ids.push(Within::card().enqueue(&db.pool).await.unwrap().id());
    let mut batch = Batch::new();
    batch.add(Charge::card()).unwrap();
    batch.add(Charge::card()).unwrap().key("k");
    ids.extend(batch.enqueue(&db.pool).await.unwrap());
    // Three jobs are written by INSERT, and 8200 jobs by COPY.
    for many in [3, 8200] {
        let handles: Vec<JobHandle<Charge>> =
            Charge::enqueue_all((0..many).map(|_| Charge::card()), &db.pool).returning_ids().await.unwrap();
        ids.extend(handles.iter().map(JobHandle::id));
    }
    ids.push(Charge::enqueue_all([Charge::card()], &db.pool).unique("v").returning_ids().await.unwrap()[0].id());
    let fails = Charge { card: String::new() }.enqueue(&db.pool).max_attempts(1).await.unwrap().id();

    let payloads = "select count(distinct payload) from queue.job where payload #>> '{}' like 'queue-sealed/1/rest/2026-05/%'";
    assert_eq!(db.count(payloads).await, ids.len() as i64 + 1, "each is another text");
    db.run_until_idle(worker(&db)).await;
    let right = format!("select count(*) from queue.jobs where state = 'completed' and output = '{}'", CARD.len());
    assert_eq!(db.count(&right).await, ids.len() as i64);
    assert_eq!(db.state(fails).await, Some(JobState::Dead));
    assert_eq!(tables_with(&db, "hunter2").await, [""; 0]);
    let found = queue_core::JobRef::from_id(ids[0]).find(&db.pool).await.unwrap();
    assert!(found.payload.unwrap().to_string().starts_with("\"queue-sealed/1/rest/"));
    let filter = operate::Filter { payload: true, ..operate::Filter::default() };
    let listed = Queue::new(&db.pool).jobs().matching(&filter).list().await.unwrap();
    assert!(!format!("{listed:?}").contains("hunter2"));
    db.finish().await;
}

#[tokio::test]
async fn a_payload_in_clear_text_is_read_too_whether_older_or_from_sql() {
    give("rest", "2026-05", 1);
    let db = TestDb::new().await;
    let clear = r#"select queue.enqueue('seal_rest', '{"card": "1234"}')"#;
    let job: JobId = sqlx::query_scalar(clear).fetch_one(&db.pool).await.unwrap();
    db.run_until_idle(worker(&db)).await;
    assert_eq!(db.state(job).await, Some(JobState::Completed));
    db.finish().await;
}

#[tokio::test]
async fn a_payload_that_is_too_large_once_it_is_sealed_is_refused_before_anything_is_written() {
    give("rest", "2026-05", 1);
    let db = TestDb::new().await;
    let large = |bytes| Charge { card: "x".repeat(bytes) };
    let fits = large(190_000).enqueue(&db.pool).await.unwrap().id();
    for refused in [large(200_000).enqueue(&db.pool).await.err(), Charge::enqueue_all([large(200_000)], &db.pool).await.err()] {
        let refused = match refused.unwrap() {
            Error::OneOfMany { source, .. } => *source,
            other => other,
        };
        let Error::Payload { source: PayloadError::TooLarge { size, limit: 262_144 }, .. } = refused else { panic!("{refused}") };
        assert!(size > 262_144, "it is as large as what is stored: {size}");
    }
    assert_eq!(db.count("select count(*) from queue.job").await, 1);
    db.run_until_idle(worker(&db)).await;
    assert_eq!(db.state(fits).await, Some(JobState::Completed));
    db.finish().await;
}

#[tokio::test]
async fn a_payload_belongs_to_its_store() {
    give("rest", "2026-05", 1);
    let db = TestDb::new().await;
    let other = Store::new("other").unwrap();
    migrate(&mut db.pool.acquire().await.unwrap(), other).await.unwrap();
    let mut batch = Batch::new().store(other);
    batch.add(Other::card()).unwrap();
    let job = batch.enqueue(&db.pool).await.unwrap()[0];
    let here = Other::card().enqueue(&db.pool).max_attempts(1).await.unwrap().id();
    let there = Other::card().enqueue(&db.pool).store(other).await.unwrap().id();
    let moved = "update queue.job set payload = (select payload from other.job where id = $1) where id = $2";
    sqlx::query(moved).bind(there).bind(here).execute(&db.pool).await.unwrap();
    let worker = |store| Worker::new(db.pool.clone()).register::<Other>().store(store);
    db.run_while(worker(other), async {
        let done = "select count(*) from other.jobs where state = 'completed'";
        tests::eventually("both are done", async || db.count(done).await == 2).await;
    })
    .await;
    assert_ne!(job, there);
    db.run_until_idle(worker(Store::default())).await;
    assert_eq!(db.state(here).await, Some(JobState::Dead), "{}", stored(&db, here).await);
    db.finish().await;
}
