//! Tests maps with a maximum number of concurrent jobs.

use queue_core::{Job as _, JobHandle, JobState, testing};
use tests::{eventually, within};

use super::{Act, Leaf, Parent, all_is_counted, db, gather, given, leaves, parents, parts};

const AT_ONCE: &str = "select count(*) from queue.jobs where job_type = 'child' and state in ('ready', 'running', 'scheduled')";

#[tokio::test]
#[ignore = "deep"]
async fn at_most_the_window_is_ready_or_running_and_jobs_run_in_order() {
    let db = db().await;
    let mapper = Parent {
        by_map: true,
        acts: vec![Act::Hang; 3],
        count: 60,
        in_queue: Some("leaves".into()),
        in_flight: Some(4),
        ..Parent::default()
    };
    let parent = mapper.enqueue(&db.pool).await.unwrap();
    db.run_while(
        parents(&db),
        Box::pin(async {
            db.until(parent.id(), JobState::Parked).await;
            let all = parts(&db).await;
            assert_eq!((db.count(AT_ONCE).await, all.len()), (4, 63));
            let message: String = sqlx::query_scalar("select message from queue.why($1)").bind(all[10]).fetch_one(&db.pool).await.unwrap();
            assert_eq!(message, "it waits for its turn in the map of a durable job");
            db.run_while(leaves(&db, "leaves"), async {
                // The three hanging jobs occupy three of the four slots, so the other jobs run one at a time.
                within(std::time::Duration::from_mins(2), "the others have finished", async || {
                    assert!(db.count(AT_ONCE).await <= 4);
                    gather(&db, parent.id()).await.completed == 60
                })
                .await;
                let order: Vec<i64> = db.all("select job from done_by where what = 'leaf' order by ctid").await;
                let late: Vec<i64> = order.into_iter().filter(|id| all[3..].iter().any(|part| part.0 == *id)).collect();
                assert_eq!(late, all[3..].iter().map(|part| part.0).collect::<Vec<_>>());
                for hanging in &all[..3] {
                    JobHandle::<Leaf>::from_id(*hanging).cancel(&db.pool).await.unwrap();
                }
                assert_eq!(given(&db, &parent).await.counts, [63, 60, 0, 3]);
            })
            .await;
        }),
    )
    .await;
    all_is_counted(&db).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn the_window_holds_across_several_chunks_and_retries() {
    let db = db().await;
    let acts = (0..1100).map(|n| if n % 7 == 0 { Act::Fail } else { Act::Complete }).collect();
    let mapper = Parent { by_map: true, acts, in_queue: Some("leaves".into()), in_flight: Some(64), ..Parent::default() };
    let parent = mapper.enqueue(&db.pool).await.unwrap();
    db.run_while(
        parents(&db),
        Box::pin(async {
            db.until(parent.id(), JobState::Parked).await;
            assert_eq!(db.count(AT_ONCE).await, 64);
            db.run_while(leaves(&db, "leaves"), async {
                assert_eq!(given(&db, &parent).await.counts, [1100, 942, 158, 0]);
            })
            .await;
        }),
    )
    .await;
    all_is_counted(&db).await;
    assert_eq!(db.count("select room from queue.gather").await, 64);
    db.finish().await;
}

#[tokio::test]
async fn jobs_cancelled_while_they_wait_count_and_free_no_slot() {
    let db = db().await;
    let mapper = Parent { by_map: true, count: 10, in_queue: Some("leaves".into()), in_flight: Some(2), ..Parent::default() };
    let parent = mapper.enqueue(&db.pool).await.unwrap();
    db.run_while(
        parents(&db),
        Box::pin(async {
            db.until(parent.id(), JobState::Parked).await;
            let all = parts(&db).await;
            // Cancel two waiting jobs in a transaction that stays open. Also cancel one of the jobs that may run.
            let mut open = db.pool.begin().await.unwrap();
            for waiting in [2, 9] {
                JobHandle::<Leaf>::from_id(all[waiting]).cancel(&mut open).await.unwrap();
            }
            JobHandle::<Leaf>::from_id(all[0]).cancel(&db.pool).await.unwrap();
            // The free slot would go to the third job, but the open transaction has locked that job to cancel it.
            eventually("the one that might run is counted", async || gather(&db, parent.id()).await.cancelled == 1).await;
            assert_eq!(db.count(AT_ONCE).await, 1);
            open.commit().await.unwrap();
            db.until_count(AT_ONCE, 2).await;
            eventually("all three are counted", async || gather(&db, parent.id()).await.cancelled == 3).await;
            assert_eq!((db.state(all[3]).await, db.state(all[4]).await), (Some(JobState::Ready), Some(JobState::Parked)));
            // The window does not limit a job that an operator runs explicitly.
            JobHandle::<Leaf>::from_id(all[8]).run_now(&db.pool).await.unwrap();
            assert_eq!(db.count(AT_ONCE).await, 3);
            db.run_while(leaves(&db, "leaves"), async {
                assert_eq!(given(&db, &parent).await.counts, [10, 7, 0, 3]);
            })
            .await;
        }),
    )
    .await;
    all_is_counted(&db).await;
    assert_eq!(db.count("select room from queue.gather").await, 2);
    db.finish().await;
}

#[tokio::test]
async fn a_window_of_none_and_one_with_a_time_are_refused() {
    let db = db().await;
    for wrong in [
        Parent { by_map: true, in_flight: Some(0), ..Parent::default() },
        Parent { by_map: true, in_flight: Some(1), at: true, ..Parent::default() },
    ] {
        let refused = testing::run(wrong).pool(&db.pool).await;
        assert!(refused.error.as_ref().is_some_and(|error| error.contains("in_flight")), "{:?}", refused.error);
    }
    db.finish().await;
}
