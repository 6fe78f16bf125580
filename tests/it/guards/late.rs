//! Tests claims of jobs whose transactions committed late. Such a claim searches the given blocks of the table `ready` for jobs below the
//! floors of their lanes.

use sqlx::{Connection as _, Row as _};
use tests::{
    TestDb,
    protocol::{claim_late, register, silence},
};
use uuid::Uuid;

use super::{connect, enqueue, lanes};

/// Block range that covers the whole of a small table.
const ALL: [(i64, i64); 1] = [(0, 9)];

#[tokio::test]
async fn a_late_claim_takes_jobs_below_the_floors_and_no_others() {
    let db = TestDb::new().await;
    let (mut connection, mut beside) = (connect(&db).await, connect(&db).await);
    let mut jobs = enqueue(&mut connection, &["a", "a", "a", "b", "b", "b", "c"]).await;
    let of = "select lane from queue.ready where id = any ($1) order by lane";
    let all: Vec<i64> = sqlx::query_scalar(of).bind([jobs[0], jobs[3]]).fetch_all(&mut connection).await.unwrap();
    let first: i64 =
        sqlx::query_scalar("select lane from queue.ready where id = $1").bind(jobs[0]).fetch_one(&mut connection).await.unwrap();
    if all[0] != first {
        jobs[..6].rotate_left(3);
    }
    let worker = register(&mut connection).await.unwrap();
    let floors = [jobs[1].0, jobs[5].0];
    let gone = register(&mut connection).await.unwrap();
    silence(&mut connection, gone).await.unwrap();
    for nobody in [Uuid::new_v4(), gone] {
        let lease = claim_late(&mut connection, nobody, (&all, &floors, &[9, 9]), &ALL, 9).await.unwrap();
        assert_eq!(lease.ids(), [], "a worker that does not live");
    }
    let mut holding = beside.begin().await.unwrap();
    sqlx::query("select from queue.ready where id = $1 for update").bind(jobs[3]).execute(&mut *holding).await.unwrap();
    sqlx::query("update queue.ready set attempts = 32767, crashes = 2 where id = $1").bind(jobs[4]).execute(&mut connection).await.unwrap();
    let lease = claim_late(&mut connection, worker, (&all, &floors, &[9, 9]), &ALL, 1).await.unwrap();
    assert_eq!(lease.jobs.len(), 1, "no more than the total maximum");
    let rest = claim_late(&mut connection, worker, (&all, &floors, &[9, 9]), &ALL, 9).await.unwrap();
    holding.rollback().await.unwrap();
    let mut taken = [lease.jobs, rest.jobs].concat();
    taken.sort_unstable_by_key(|job| job.id);
    let mut expected = vec![(jobs[0], 1, 0), (jobs[4], 32767, 2)];
    expected.sort_unstable();
    assert_eq!(taken.iter().map(|job| (job.id, job.attempts, job.crashes)).collect::<Vec<_>>(), expected);
    let rest = claim_late(&mut connection, worker, (&all, &[i64::MAX; 2], &[1, 2]), &ALL, 9).await.unwrap();
    let of = |lane| rest.jobs.iter().filter(|job| job.lane == all[lane]).count();
    assert_eq!((of(0), of(1)), (1, 2), "at most the maximum of each lane, and nothing of one that was not given");
    let leases: Vec<(Option<i64>, Vec<i64>)> =
        sqlx::query_as("select lane, ids from queue.lease order by cardinality(ids)").fetch_all(&mut connection).await.unwrap();
    assert!(leases[..2].iter().all(|(lane, _)| lane.is_some_and(|lane| all.contains(&lane))), "each is of one lane");
    assert_eq!(leases[2].0, None, "it is of two");
    assert!(leases[2].1.is_sorted());
    assert_eq!(leases.len(), 3, "no lease for nothing");
    db.finish().await;
}

#[tokio::test]
async fn a_late_claim_reads_the_given_blocks_and_no_others() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    enqueue(&mut connection, &["a"]).await;
    let lanes = lanes(&mut connection).await;
    let fill = "insert into queue.ready (lane, seq, id) select $1, n, n from generate_series(1, 2000) n";
    sqlx::query(fill).bind(lanes[0]).execute(&mut connection).await.unwrap();
    let jobs = "insert into queue.job (id, lane, max_attempts, payload) select n, $1, 1, '{}' from generate_series(1, 2000) n";
    sqlx::query(jobs).bind(lanes[0]).execute(&mut connection).await.unwrap();
    let blocks: Vec<(i64, i64)> = sqlx::query_as("select (ctid::text::point)[0]::bigint, count(*) from queue.ready group by 1 order by 1")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert!(blocks.len() > 8, "{blocks:?}");
    let worker = register(&mut connection).await.unwrap();
    let extent = sqlx::query(include_str!("../../../queue-worker/sql/extent.sql")).bind(worker).bind(50_000.0);
    let extent = extent.fetch_one(&mut connection).await.unwrap();
    assert_eq!(extent.get::<i64, _>("blocks"), blocks.len() as i64);
    let ago = "select extract(epoch from clock_timestamp() - queue.enqueued_at($1))::float8";
    let ago: f64 = sqlx::query_scalar(ago).bind(extent.get::<i64, _>("place")).fetch_one(&mut connection).await.unwrap();
    assert!((60.0..90.0).contains(&ago), "{ago}");
    let nobody = sqlx::query(include_str!("../../../queue-worker/sql/extent.sql")).bind(Uuid::new_v4()).bind(0.0);
    let nobody = nobody.fetch_one(&mut connection).await.unwrap();
    assert_eq!(nobody.get::<Option<i64>, _>("place"), None, "of a worker that does not live");
    let of = |part: std::ops::Range<usize>| usize::try_from(blocks[part].iter().map(|(_, entries)| entries).sum::<i64>()).unwrap();
    let mut claim = async |parts: &[(i64, i64)], most| {
        claim_late(&mut connection, worker, (&lanes, &[i64::MAX], &[9_999]), parts, most).await.unwrap().jobs.len()
    };
    assert_eq!(claim(&[], 9_999).await, 0);
    assert_eq!(claim(&[(1, 1)], 9_999).await, 0);
    assert_eq!(claim(&[(1, 3)], 9_999).await, of(1..3));
    assert_eq!(claim(&[(3, 4), (5, 6)], 9_999).await, of(3..4) + of(5..6));
    assert_eq!(claim(&[(4, 5), (6, 7)], 150).await, 150, "both parts together");
    assert_eq!(claim(&[(0, 99)], 9_999).await, 2_001 - of(1..4) - of(5..6) - 150);
    db.finish().await;
}

#[tokio::test]
async fn a_late_claim_reports_jobs_without_payloads_and_omits_large_ones() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let jobs = enqueue(&mut connection, &["a"; 3]).await;
    let lanes = lanes(&mut connection).await;
    sqlx::query("delete from queue.job where id = $1").bind(jobs[0]).execute(&mut connection).await.unwrap();
    let large = "update queue.job set payload = jsonb_build_object('x', repeat('x', 1000)) where id = $1";
    sqlx::query(large).bind(jobs[1]).execute(&mut connection).await.unwrap();
    let worker = register(&mut connection).await.unwrap();
    let rows = sqlx::query(include_str!("../../../queue-worker/sql/claim_late.sql"))
        .bind(Uuid::new_v4())
        .bind(worker)
        .bind(&lanes)
        .bind([i64::MAX])
        .bind([0_i64])
        .bind(9)
        .bind(500)
        .bind([9_i64])
        .bind([9])
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let mut rows: Vec<(i64, Option<i16>, Option<String>)> =
        rows.iter().map(|row| (row.get("id"), row.get("max_attempts"), row.get("payload"))).collect();
    rows.sort();
    assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), jobs.iter().map(|job| job.0).collect::<Vec<_>>());
    assert_eq!((rows[0].1, &rows[0].2), (None, &None));
    assert!(rows[1].1.is_some() && rows[1].2.is_none());
    assert!(rows[2].2.is_some());
    sqlx::query("delete from queue.lease").execute(&mut connection).await.unwrap();
    sqlx::query("delete from queue.job").execute(&mut connection).await.unwrap();
    db.finish().await;
}
