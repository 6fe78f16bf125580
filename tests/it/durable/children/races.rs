//! Ends of children against parking, in every order: none is lost, and nobody's is told twice.

use std::time::Duration;

use queue_core::{Job as _, JobHandle, JobState};
use tests::{TestDb, eventually, within};

use super::{Act, Leaf, Options, Tree, children, db, given, run, tree, worker};

#[tokio::test]
#[ignore = "deep"]
async fn two_workers_lose_no_child_and_run_none_twice() {
    let db = db().await;
    let mut parents = Vec::new();
    for n in 0..200 {
        let others = (n % 20 == 0).then_some(3);
        let acts = (0..5).map(|child| if (n + child) % 9 == 0 { Act::Fail } else { Act::Complete });
        parents.push(tree(acts, Options { fail_between: n % 3 == 0, others, ..Options::default() }).enqueue(&db.pool).await.unwrap());
    }
    db.run_while(
        worker(&db).queue("default", 16),
        db.run_while(worker(&db).queue("default", 16), async {
            within(Duration::from_mins(3), "all parents are over", async || {
                db.count("select count(*) from queue.jobs where job_type = 'parent' and state not in ('completed', 'dead')").await == 0
            })
            .await;
        }),
    )
    .await;
    assert_eq!(db.count("select count(*) from queue.jobs where job_type = 'parent' and state = 'completed'").await, 200);
    for (n, parent) in (0..).zip(&parents) {
        let mut expected: Vec<String> =
            (0..5).map(|child| if (n + child) % 9 == 0 { "dead after 2: as told".to_owned() } else { (child + 1).to_string() }).collect();
        expected.extend(std::iter::repeat_n("3".to_owned(), if n % 20 == 0 { 2 } else { 0 }));
        assert_eq!(given(&db, parent).await, expected, "parent {n}");
    }
    // Each that did not fail ran once; the others twice.
    let ran = "select count(*) from (select c.id, c.state, count(d.job) as runs from queue.child c left join done_by d on d.job = c.id
        where c.name like 'leaf%' group by 1, 2) r where runs <> case state when 'completed' then 1 else 2 end";
    assert_eq!((db.count(ran).await, db.count("select count(*) from queue.child").await), (0, 1020));
    let parked = "select (select count(*) from queue.parked) + (select count(*) from queue.signal_hint)";
    eventually("no hint is left", async || db.count(parked).await == 0).await;
    db.finish().await;
}

/// Parks a parent whose child nobody runs, and returns the child.
async fn parked(db: &TestDb) -> (JobHandle<Tree>, JobHandle<Leaf>) {
    let options = Options { in_queue: Some("nobody".into()), ..Options::default() };
    let parent = tree([Act::Complete], options).enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker().register::<Tree>().queue("default", 4), db.until(parent.id(), JobState::Parked)).await;
    let child = children(db, parent.id()).await[0].id;
    (parent, JobHandle::from_id(child))
}

#[tokio::test]
async fn an_end_that_is_committed_late_wakes_its_parent() {
    let db = db().await;
    let (parent, child) = parked(&db).await;
    let mut open = db.pool.begin().await.unwrap();
    child.cancel(&mut open).await.unwrap();
    db.run_while(db.worker().register::<Tree>().queue("default", 4), async {
        // Meanwhile it is woken by hand, looks, and waits on.
        parent.run_now(&db.pool).await.unwrap();
        eventually("it waits again", async || {
            db.count("select count(*) from queue.parked").await == 1 && db.count("select count(*) from queue.signal_hint").await == 0
        })
        .await;
        open.commit().await.unwrap();
        assert_eq!(given(&db, &parent).await, ["cancelled"]);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn an_end_that_is_rolled_back_is_not_told() {
    let db = db().await;
    let (parent, child) = parked(&db).await;
    let mut open = db.pool.begin().await.unwrap();
    child.cancel(&mut open).await.unwrap();
    open.rollback().await.unwrap();
    db.run_while(worker(&db).queue("default", 4).queue("nobody", 4), async {
        assert_eq!(given(&db, &parent).await, ["1"]);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn the_child_of_a_process_that_died_too_often_tells() {
    let db = db().await;
    let (parent, child) = parked(&db).await;
    // As three processes left it that ended during its attempts.
    let silent = format!(
        "with gone as (delete from queue.ready where id = {} returning id, lane)
         insert into queue.lease (token, worker, claimed_at, lane, ids, attempts, crashes)
         select gen_random_uuid(), gen_random_uuid(), now() - interval '1 h', lane, array[id], '{{1}}', '{{2}}' from gone",
        child.id()
    );
    run(&db, &silent).await;
    db.run_while(db.worker().register::<Tree>().queue("default", 4), async {
        let told = given(&db, &parent).await.remove(0);
        assert!(told.contains("the process ended during the attempt"), "{told}");
    })
    .await;
    db.finish().await;
}
