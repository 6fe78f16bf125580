//! Tests maps. Each job of a map is spawned once, regardless of how the parent's attempts end. Each job counts once, regardless of its
//! outcome. The parent is woken once all jobs of the map have finished.

mod inline;
mod races;
mod statements;
mod whole;
mod window;

use std::time::Duration;

use queue_core::{Job as _, JobHandle, JobId, JobState};
use tests::TestDb;

use super::{
    db, db_by_hand,
    family::{Act, FamilyReport, Leaf, Parent, all_is_counted, gather, given, leaves, parents},
};

/// Returns the jobs of all maps, ordered by parent and index.
async fn parts(db: &TestDb) -> Vec<JobId> {
    db.all("select id from queue.gather_part order by parent, nr").await
}

#[tokio::test]
#[ignore = "deep"]
async fn an_attempt_that_ends_between_chunks_goes_on_after_the_last() {
    let db = db().await;
    let broken = Parent { by_map: true, count: 2500, panics_at: Some(1500), in_queue: Some("leaves".into()), ..Parent::default() };
    let parent = broken.enqueue(&db.pool).await.unwrap();
    db.run_while(parents(&db), async {
        db.until(parent.id(), JobState::Parked).await;
        assert_eq!(db.count("select max(attempt) from done_by").await, 2);
        assert_eq!(db.count("select count(*) from queue.map_batch where chunk < 3").await, 3);
        let numbers = "select count(distinct payload ->> 'number') from queue.job where payload ? 'number'";
        let all = "select count(*) from queue.jobs where job_type = 'child'";
        assert_eq!((db.count(numbers).await, db.count(all).await), (2500, 2500));
        let out_of_order =
            "select count(*) from queue.gather_part p join queue.job j using (id) where p.nr <> (j.payload ->> 'number')::bigint";
        assert_eq!(db.count(out_of_order).await, 0);
        db.run_while(leaves(&db, "leaves"), async {
            let report = given(&db, &parent).await;
            assert_eq!((report.counts, report.sum), ([2500, 2500, 0, 0], (0..2500).sum::<u64>()));
        })
        .await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn an_iterator_that_gives_fewer_than_were_spawned_ends_the_job() {
    let db = db().await;
    let broken =
        Parent { by_map: true, count: 1500, panics_at: Some(1400), fewer: 600, in_queue: Some("nobody".into()), ..Parent::default() };
    let parent = broken.enqueue(&db.pool).await.unwrap();
    db.run_while(parents(&db), db.until(parent.id(), JobState::Dead)).await;
    let error = db.dead_error(parent.id()).await;
    assert!(error.contains("must be the same in each attempt"), "{error}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_dead_mapped_job_that_is_requeued_does_not_change_the_reported_outcome() {
    let db = db().await;
    let mapper = Parent { by_map: true, acts: vec![Act::Fail], count: 3, in_queue: Some("leaves".into()), ..Parent::default() };
    let parent = mapper.enqueue(&db.pool).await.unwrap();
    let requeued = Box::pin(async {
        db.until(parent.id(), JobState::Parked).await;
        let all = parts(&db).await;
        // The other jobs are postponed, so that the dead job is requeued before they end.
        for other in &all[1..] {
            JobHandle::<Leaf>::from_id(*other).snooze(&db.pool, Duration::from_hours(1)).await.unwrap();
        }
        db.run_while(leaves(&db, "leaves"), async {
            db.until(all[0], JobState::Dead).await;
            db.until_count("select count(*) from queue.gather_part", 3).await;
            db.run(&format!("update queue.job set payload = '{{\"number\": 0, \"act\": \"Complete\"}}' where id = {}", all[0])).await;
            JobHandle::<Leaf>::from_id(all[0]).requeue(&db.pool).await.unwrap();
            db.until(all[0], JobState::Completed).await;
            tests::eventually("its first end is counted", async || gather(&db, parent.id()).await.need == 3).await;
            for other in &all[1..] {
                JobHandle::<Leaf>::from_id(*other).run_now(&db.pool).await.unwrap();
            }
            let report = given(&db, &parent).await;
            assert_eq!((report.counts, report.first), ([4, 3, 1, 0], ["0", "1", "2", "3"].map(str::to_owned).to_vec()));
        })
        .await;
    });
    db.run_while(parents(&db), requeued).await;
    all_is_counted(&db).await;
    db.finish().await;
}
