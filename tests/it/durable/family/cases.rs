//! Tests parents with spawned leaves and parents with mapped leaves, which must behave the same.

use std::time::Duration;

use queue_core::{Job as _, JobState, Queue};
use tests::{eventually, within};

use super::{super::db, Act, FamilyReport, Leaf, Parent, all_is_counted, family, gather, given, leaves, parents};

/// Query for the number of spawned leaves whose end was reported to the parent, plus the number of mapped leaves whose end was counted.
const REPORTED: &str = "select (select count(*) from queue.child where state is not null)
    + (select coalesce(sum(completed + dead + cancelled), 0)::bigint from queue.gather)";

/// Creates a parent whose leaves wait in the queue `leaves`, which the parent's worker does not serve.
fn waiting(by_map: bool, acts: &[Act], count: u32) -> Parent {
    Parent { by_map, acts: acts.to_vec(), count, in_queue: Some("leaves".into()), ..Parent::default() }
}

#[tokio::test]
async fn a_parent_holds_nothing_until_all_have_finished_and_reads_outcomes_in_order() {
    for by_map in [false, true] {
        let db = db().await;
        let parent = Parent { fail_between: true, ..waiting(by_map, &[Act::Complete, Act::Fail, Act::Hang], 2) };
        let parent = parent.enqueue(&db.pool).await.unwrap();
        let names = if by_map { "leaf (join)" } else { "leaf/0 (join),leaf/1 (join),leaf/2 (join),leaf/3 (join),leaf/4 (join)" };
        let system = if by_map { format!("\"part_of\": \"{}/leaf\"", parent.id()) } else { format!("\"child_of\": \"{}\"", parent.id()) };
        let test = async {
            db.until(parent.id(), JobState::Parked).await;
            assert_eq!(db.rows_of(&["lease"]).await, 0);
            assert_eq!(db.count(&format!("select count(*) from queue.parked where names = '{{{names}}}' and run_at is null")).await, 1);
            // The second attempt has spawned no additional leaf.
            let metas = format!("select count(*) from queue.job where meta = '{{\"tenant\": \"t\"}}' and system = '{{{system}}}'");
            assert_eq!((family(&db).await.len(), db.count(&metas).await), (5, 5));
            if by_map {
                let why = format!("select count(*) from queue.why({}) w where w::text like '%0 of 5 of%leaf%have finished%'", parent.id());
                assert_eq!(db.count(&why).await, 1);
                let message: String = db.one(&format!("select message from queue.why({})", parent.id())).await;
                assert_eq!(message, "it waits for the jobs of its map \"leaf\"");
            }
            let hangs = family(&db).await[2];
            db.run_while(leaves(&db, "leaves"), async {
                // Wait for the handler, because a job that is cancelled between its claim and its handler never runs.
                let has_begun = format!("select count(*) from done_by where job = {} and what = 'leaf'", hangs.id());
                eventually("its handler runs", async || db.count(&has_begun).await == 1).await;
                hangs.cancel(&db.pool).await.unwrap();
                let first = ["0", "dead after 2: as told", "cancelled", "3", "4"].map(str::to_owned).to_vec();
                assert_eq!(given(&db, &parent).await, FamilyReport { counts: [5, 3, 1, 1], first, sum: 7 }, "by map: {by_map}");
            })
            .await;
        };
        db.run_while(parents(&db), Box::pin(test)).await;
        if by_map {
            let gather = gather(&db, parent.id()).await;
            assert_eq!((gather.total, gather.need, gather.completed, gather.dead, gather.cancelled), (Some(5), 0, 3, 1, 1));
        } else {
            let children = Queue::new(&db.pool).job(parent.id()).children().await.unwrap();
            let found: Vec<_> = children.iter().map(|child| (child.name.as_str(), child.state.as_deref().unwrap())).collect();
            let ends =
                [("leaf/0", "completed"), ("leaf/1", "dead"), ("leaf/2", "cancelled"), ("leaf/3", "completed"), ("leaf/4", "completed")];
            assert_eq!(found, ends);
        }
        assert_eq!(
            db.count("select count(*) from done_by where what = 'leaf'").await,
            6,
            "each ran once, but for the one that failed twice"
        );
        if by_map {
            assert_eq!(db.count("select count(*) from done_by where what = 'parent'").await, 2, "it was woken once");
        }
        all_is_counted(&db).await;
        db.finish().await;
    }
}

#[tokio::test]
async fn expired_and_cancelled_leaves_count_as_finished_and_an_empty_family_finishes_immediately() {
    for by_map in [false, true] {
        let db = db().await;
        let late = Parent { expired: true, ..waiting(by_map, &[], 3) }.enqueue(&db.pool).await.unwrap();
        let empty = Parent { by_map, ..Parent::default() }.enqueue(&db.pool).await.unwrap();
        let keyed = Parent { by_map, count: 3, key: Some("k".into()), ..Parent::default() }.enqueue(&db.pool).await.unwrap();
        db.run_while(parents(&db).register::<Leaf>(), async {
            let report = given(&db, &late).await;
            assert_eq!((report.counts, report.first), ([3, 0, 0, 3], vec!["expired".to_owned(); 3]), "by map: {by_map}");
            assert_eq!((given(&db, &empty).await.counts, given(&db, &keyed).await.counts), ([0; 4], [3, 3, 0, 0]), "by map: {by_map}");
            let waits = waiting(by_map, &[], 1).enqueue(&db.pool).await.unwrap();
            db.until(waits.id(), JobState::Parked).await;
            family(&db).await[6].cancel(&db.pool).await.unwrap();
            assert_eq!(given(&db, &waits).await.first, ["cancelled"], "by map: {by_map}");
        })
        .await;
        all_is_counted(&db).await;
        db.finish().await;
    }
}

#[tokio::test]
async fn cancelling_a_parent_cancels_its_family() {
    for (by_map, in_flight) in [(false, None), (true, None), (true, Some(4))] {
        let db = db().await;
        let parent = Parent { in_flight, ..waiting(by_map, &[Act::Hang], 29) }.enqueue(&db.pool).await.unwrap();
        db.run_while(parents(&db), async {
            db.until(parent.id(), JobState::Parked).await;
            parent.cancel(&db.pool).await.unwrap();
            assert_eq!(db.count("select count(*) from queue.jobs where job_type = 'child' and state = 'cancelled'").await, 30);
            all_is_counted(&db).await;
            db.until_count("select count(*) from queue.end_hint", 0).await;
        })
        .await;
        assert_eq!(
            (db.state(parent.id()).await, db.count("select count(*) from done_by where what = 'leaf'").await),
            (Some(JobState::Cancelled), 0)
        );
        if by_map {
            assert_eq!(gather(&db, parent.id()).await.cancelled, 30);
        } else {
            assert_eq!(db.count("select count(*) from queue.child where state = 'cancelled'").await, 30);
        }
        db.finish().await;
    }
}

#[tokio::test]
async fn a_job_that_exists_already_is_in_no_family() {
    for (by_map, why, left) in [(false, "holds its uniqueness key", 1), (true, "holds the uniqueness key", 0)] {
        let db = db().await;
        let parent = Parent { unique: Some("k".into()), ..waiting(by_map, &[], 2) }.enqueue(&db.pool).await.unwrap();
        db.run_while(parents(&db), db.until(parent.id(), JobState::Dead)).await;
        let error = db.dead_error(parent.id()).await;
        assert!(error.contains(why), "{error}");
        assert_eq!((family(&db).await.len(), db.rows_of(&["child", "gather_part"]).await), (left, left as i64), "by map: {by_map}");
        db.finish().await;
    }
}

#[tokio::test]
async fn a_requeued_completed_parent_has_a_new_family_and_a_deleted_one_has_none() {
    for by_map in [false, true] {
        let db = db().await;
        let parent = Parent { by_map, count: 3, ..Parent::default() }.enqueue(&db.pool).await.unwrap();
        db.run_while(parents(&db).register::<Leaf>(), async {
            assert_eq!(given(&db, &parent).await.counts, [3, 3, 0, 0]);
            parent.requeue(&db.pool).await.unwrap();
            db.until(parent.id(), JobState::Completed).await;
            assert_eq!((family(&db).await.len(), given(&db, &parent).await.counts), (6, [3, 3, 0, 0]), "by map: {by_map}");
        })
        .await;
        let gone = "delete from queue.done where id = {0}; delete from queue.job where id = {0};
            select queue.prune_children(0, 1000); select queue.prune_gathers(0, 1000)";
        db.run(&gone.replace("{0}", &parent.id().to_string())).await;
        assert_eq!(db.rows_of(&["child", "gather", "map_batch"]).await, 0, "by map: {by_map}");
        db.run("delete from queue.step").await;
        db.finish().await;
    }
}

#[tokio::test]
async fn an_end_counts_once_it_is_committed_and_never_if_it_is_rolled_back() {
    for by_map in [false, true] {
        let db = db().await;
        let parent = waiting(by_map, &[], 4).enqueue(&db.pool).await.unwrap();
        let test = async {
            db.until(parent.id(), JobState::Parked).await;
            let all = family(&db).await;
            let (mut kept, mut undone) = (db.pool.begin().await.unwrap(), db.pool.begin().await.unwrap());
            all[0].cancel(&mut kept).await.unwrap();
            all[1].cancel(&mut undone).await.unwrap();
            // An operator wakes the parent, which queries its leaves and waits again.
            parent.run_now(&db.pool).await.unwrap();
            eventually("it waits again", async || {
                db.rows_of(&["parked"]).await == 1 && db.rows_of(&["signal_hint", "end_hint"]).await == 0
            })
            .await;
            all[2].cancel(&db.pool).await.unwrap();
            db.until_count(REPORTED, 1).await;
            undone.rollback().await.unwrap();
            db.run_while(leaves(&db, "leaves"), async {
                db.until_count(REPORTED, 3).await;
                db.until(parent.id(), JobState::Parked).await;
                kept.commit().await.unwrap();
                assert_eq!(given(&db, &parent).await.first, ["cancelled", "1", "cancelled", "3"], "by map: {by_map}");
            })
            .await;
        };
        db.run_while(parents(&db), Box::pin(test)).await;
        db.finish().await;
    }
}

#[tokio::test]
async fn the_end_of_a_leaf_whose_process_died_too_often_is_reported() {
    for by_map in [false, true] {
        let db = db().await;
        let parent = waiting(by_map, &[], 1).enqueue(&db.pool).await.unwrap();
        db.run_while(parents(&db), async {
            db.until(parent.id(), JobState::Parked).await;
            db.crash(family(&db).await[0].id()).await;
            let report = given(&db, &parent).await;
            assert_eq!(report.counts, [1, 0, 1, 0], "by map: {by_map}");
            assert!(report.first[0].contains("the process ended during the attempt"), "{:?}", report.first);
        })
        .await;
        db.finish().await;
    }
}

#[tokio::test]
async fn the_end_of_a_leaf_is_reported_whichever_statement_enqueues_and_claims_it() {
    let db = db().await;
    db.run("select queue.set_limit('queue:limited', 2)").await;
    let (key, queue) = (|| Some("k".to_owned()), |queue: &str| Some(queue.to_owned()));
    let mut parents_of = Vec::new();
    for by_map in [false, true] {
        let plain = Parent { by_map, count: 3, in_queue: queue("leaves"), ..Parent::default() };
        let keyed = Parent { key: key(), ..plain.clone() };
        let fair = Parent { fair: key(), ..plain.clone() };
        let limited = Parent { in_queue: queue("limited"), ..plain.clone() };
        for parent in [plain, keyed, fair, limited] {
            parents_of.push((parent.clone().enqueue(&db.pool).await.unwrap(), parent));
        }
    }
    db.run_while(
        parents(&db),
        Box::pin(db.run_while(leaves(&db, "leaves").queue("limited", 2), async {
            for (parent, of) in parents_of {
                let Parent { by_map, key, fair, in_queue, .. } = of;
                assert_eq!(given(&db, &parent).await.counts, [3, 3, 0, 0], "by map: {by_map}, {key:?}, {fair:?}, {in_queue:?}");
            }
        })),
    )
    .await;
    db.finish().await;
}

/// While the workers report the ends of mapped leaves, dead leaves are requeued and die again. The second death is not counted.
#[tokio::test]
#[ignore = "deep"]
async fn two_workers_report_each_end_once_and_wake_each_parent_once() {
    for (by_map, count, each) in [(false, 200, 5), (true, 4, 500)] {
        let db = db().await;
        let (mut all, act) = (Vec::new(), |n, leaf| if (n + leaf) % 9 == 0 { Act::Fail } else { Act::Complete });
        for n in 0..count {
            let acts = (0..each).map(|leaf| act(n, leaf)).collect();
            let in_flight = (n % 2 == 1).then_some(20);
            all.push(Parent { by_map, acts, in_flight, fail_between: n % 3 == 0, ..Parent::default() }.enqueue(&db.pool).await.unwrap());
        }
        let worker = || db.worker().register::<Parent>().register::<Leaf>().queue("default", 16);
        let requeue = "select count(queue.requeue(id)) from (select d.id from queue.dead d limit 5) d";
        let finished =
            format!("select count(*) from queue.jobs where job_type = 'parent' and state = 'completed' having count(*) = {count}");
        let test = within(Duration::from_mins(3), "all parents have finished", async || {
            if by_map {
                db.count(requeue).await;
            }
            db.all::<i64>(&finished).await == [count]
        });
        db.run_while(worker(), Box::pin(db.run_while(worker(), test))).await;
        for (n, parent) in (0..).zip(&all) {
            let report = given(&db, parent).await;
            let dead = (0..each).filter(|leaf| act(n, *leaf) == Act::Fail).count() as u64;
            assert_eq!(report.counts, [each as u64, each as u64 - dead, dead, 0], "parent {n}, by map: {by_map}");
            if !by_map {
                let of = |leaf| if act(n, leaf) == Act::Fail { "dead after 2: as told".to_owned() } else { leaf.to_string() };
                assert_eq!(report.first, (0..each).map(of).collect::<Vec<_>>(), "parent {n}");
            }
        }
        let runs = db.count("select max(n) from (select count(*) as n from done_by where what = 'parent' group by job) r").await;
        if by_map {
            assert_eq!(runs, 2, "each was woken once");
        } else {
            // Each completed leaf ran once, and each failed leaf ran twice.
            let ran =
                "select count(*) from (select c.id, c.state, count(d.job) as runs from queue.child c left join done_by d on d.job = c.id
                group by 1, 2) r where runs <> case state when 'completed' then 1 else 2 end";
            assert_eq!((db.count(ran).await, db.rows_of(&["child"]).await), (0, count * each));
        }
        all_is_counted(&db).await;
        db.until_count("select count(*) from queue.signal_hint", 0).await;
        db.finish().await;
    }
}
