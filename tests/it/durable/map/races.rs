//! Ends of parts against parking, in every order: the parent is woken once, and never early.

use std::time::Duration;

use queue_core::{Job as _, JobHandle, JobState};
use tests::{eventually, within};

use super::{Act, Leaf, Mapper, all_is_counted, db, gather, given, leaves, parents, parts, run};

#[tokio::test]
#[ignore = "deep"]
async fn two_workers_count_two_thousand_parts_once_each_and_wake_their_parents_once() {
    let db = db().await;
    let acts: Vec<Act> = (0..500).map(|n| if n % 9 == 0 { Act::Fail } else { Act::Complete }).collect();
    let mut all = Vec::new();
    for n in 0..4 {
        let mapper = Mapper { acts: acts.clone(), in_flight: (n % 2 == 1).then_some(20), ..Mapper::default() };
        all.push(mapper.enqueue(&db.pool).await.unwrap());
    }
    let worker = || db.worker().register::<Mapper>().register::<Leaf>().queue("default", 16);
    db.run_while(
        worker(),
        db.run_while(worker(), async {
            // Dead letters are brought back meanwhile, and die again: that counts no more.
            let requeue = "select count(queue.requeue(id)) from (select d.id from queue.dead d limit 5) d";
            within(Duration::from_mins(3), "all parents are over", async || {
                db.count(requeue).await;
                db.count("select count(*) from queue.jobs where job_type = 'mapper' and state = 'completed'").await == 4
            })
            .await;
        }),
    )
    .await;
    for parent in &all {
        assert_eq!(given(&db, parent).await.counts, [500, 444, 56, 0]);
    }
    assert_eq!(db.count("select max(n) from (select count(*) as n from done_by where what = 'mapper' group by job) r").await, 2);
    all_is_counted(&db).await;
    assert_eq!(db.count("select count(*) from queue.signal_hint").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn an_end_that_is_not_committed_is_not_counted_and_one_that_is_rolled_back_never() {
    let db = db().await;
    let mapper = Mapper { count: 4, in_queue: Some("leaves".into()), ..Mapper::default() };
    let parent = mapper.enqueue(&db.pool).await.unwrap();
    db.run_while(
        parents(&db),
        Box::pin(async {
            db.until(parent.id(), JobState::Parked).await;
            let all = parts(&db).await;
            let (mut kept, mut undone) = (db.pool.begin().await.unwrap(), db.pool.begin().await.unwrap());
            JobHandle::<Leaf>::from_id(all[0]).cancel(&mut kept).await.unwrap();
            JobHandle::<Leaf>::from_id(all[1]).cancel(&mut undone).await.unwrap();
            JobHandle::<Leaf>::from_id(all[2]).cancel(&db.pool).await.unwrap();
            eventually("the one that is committed counts", async || gather(&db, parent.id()).await.need == 3).await;
            // Meanwhile it is woken by hand, looks, and waits on.
            parent.run_now(&db.pool).await.unwrap();
            eventually("it waits again", async || {
                db.count("select count(*) from queue.parked").await == 1 && db.count("select count(*) from queue.signal_hint").await == 0
            })
            .await;
            undone.rollback().await.unwrap();
            db.run_while(leaves(&db, "leaves"), async {
                eventually("two more count", async || gather(&db, parent.id()).await.need == 1).await;
                assert_eq!(db.state(parent.id()).await, Some(JobState::Parked));
                kept.commit().await.unwrap();
                assert_eq!(given(&db, &parent).await.counts, [4, 2, 0, 2]);
            })
            .await;
        }),
    )
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_gather_that_somebody_has_stops_no_other() {
    let db = db().await;
    let mapper = |n| Mapper { count: n, in_queue: Some("leaves".into()), ..Mapper::default() };
    let (held, free) = (mapper(3).enqueue(&db.pool).await.unwrap(), mapper(2).enqueue(&db.pool).await.unwrap());
    db.run_while(
        parents(&db),
        Box::pin(async {
            db.until(held.id(), JobState::Parked).await;
            db.until(free.id(), JobState::Parked).await;
            let mut open = db.pool.begin().await.unwrap();
            sqlx::query("select from queue.gather where parent = $1 for update").bind(held.id()).execute(&mut *open).await.unwrap();
            db.run_while(leaves(&db, "leaves"), async {
                assert_eq!(given(&db, &free).await.counts, [2, 2, 0, 0]);
                eventually("the parts of the other are over", async || db.count("select count(*) from queue.gather_part").await == 0).await;
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

#[tokio::test]
async fn the_part_of_a_process_that_died_too_often_counts() {
    let db = db().await;
    let mapper = Mapper { count: 1, in_queue: Some("nobody".into()), ..Mapper::default() };
    let parent = mapper.enqueue(&db.pool).await.unwrap();
    db.run_while(parents(&db), async {
        db.until(parent.id(), JobState::Parked).await;
        // As three processes left it that ended during its attempts.
        let silent = format!(
            "with gone as (delete from queue.ready where id = {} returning id, lane)
             insert into queue.lease (token, worker, claimed_at, lane, ids, attempts, crashes)
             select gen_random_uuid(), gen_random_uuid(), now() - interval '1 h', lane, array[id], '{{1}}', '{{2}}' from gone",
            parts(&db).await[0]
        );
        run(&db, &silent).await;
        let said = given(&db, &parent).await;
        assert_eq!(said.counts, [1, 0, 1, 0]);
        assert!(said.first[0].contains("the process ended during the attempt"), "{:?}", said.first);
    })
    .await;
    db.finish().await;
}
