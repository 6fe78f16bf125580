//! Tests maps while another session has locked the row of a map or the table of expiries.

use queue_core::{Job as _, JobState};
use tests::Sql as _;

use super::{Parent, db, gather, given, leaves, parents};

#[tokio::test]
async fn a_locked_gather_stops_no_other() {
    let db = db().await;
    let mapper = |n| Parent { by_map: true, count: n, in_queue: Some("leaves".into()), ..Parent::default() };
    let (held, free) = (mapper(3).enqueue(&db.pool).await.unwrap(), mapper(2).enqueue(&db.pool).await.unwrap());
    db.run_while(
        parents(&db),
        Box::pin(async {
            db.until(held.id(), JobState::Parked).await;
            db.until(free.id(), JobState::Parked).await;
            let mut open = db.pool.begin().await.unwrap();
            open.run(&format!("select from queue.gather where parent = {0} for update", held.id())).await;
            db.run_while(leaves(&db, "leaves"), async {
                assert_eq!(given(&db, &free).await.counts, [2, 2, 0, 0]);
                db.until_count("select count(*) from queue.gather_part", 0).await;
                assert_eq!(gather(&db, held.id()).await.need, 3);
                open.rollback().await.unwrap();
                assert_eq!(given(&db, &held).await.counts, [3, 3, 0, 0]);
            })
            .await;
        }),
    )
    .await;
    db.finish().await;
}

/// Locks the table of job expiries in the mode that `create index` uses.
#[tokio::test]
async fn a_locked_table_of_expiries_stops_no_map() {
    let db = db().await;
    let mut open = db.pool.begin().await.unwrap();
    open.run("lock table queue.expiry in share mode").await;
    let mapper = Parent { by_map: true, count: 3, in_queue: Some("leaves".into()), ..Parent::default() }.enqueue(&db.pool).await.unwrap();
    db.run_while(
        parents(&db),
        db.run_while(leaves(&db, "leaves"), async {
            assert_eq!(given(&db, &mapper).await.counts, [3, 3, 0, 0]);
        }),
    )
    .await;
    open.rollback().await.unwrap();
    db.finish().await;
}
