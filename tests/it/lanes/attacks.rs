//! Tests every interleaving of a producer with the steps that delete its lane, statement by statement. No job is left without its lane.

use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{Sql as _, TestDb, lanes, operate};

/// Producers by name, each with its statements. `MEET`, `INSERT` and `RANK` stand for statements in `produce`. The last statement is a
/// commit.
const PRODUCERS: [(&str, &[&str]); 6] = [
    ("plain", &["begin", "select queue.enqueue('do', '{}')", "commit"]),
    (
        "rolled back to a savepoint",
        &["begin; savepoint a; select queue.enqueue('do', '{}'); rollback to a", "select queue.enqueue('do', '{}')", "commit"],
    ),
    (
        "under an old snapshot",
        &["begin isolation level repeatable read; select count(*) from queue.lane", "select queue.enqueue('do', '{}')", "commit"],
    ),
    ("in line", &["begin", "select queue.enqueue('do', '{}', '{\"key\": \"a\"}')", "commit"]),
    ("many", &["MEET", "INSERT", "commit"]),
    ("to a priority", &["begin; select queue.enqueue('do', '{}', '{\"queue\": \"default\", \"priority\": 7}')", "RANK", "commit"]),
];

/// Maintenance step in the deletion of a lane. The transaction of a step stays open until the next `Commit`.
#[derive(Clone, Copy, Debug)]
enum Step {
    Leave,
    Pass,
    Forget,
    Commit,
}

const STEPS: [Step; 8] = [Step::Leave, Step::Commit, Step::Pass, Step::Commit, Step::Pass, Step::Commit, Step::Forget, Step::Commit];

async fn produce(on: &mut PgConnection, step: &'static str) {
    match step {
        "MEET" => {
            on.run("begin").await;
            operate::ensure_lanes(on, &[("default", 100)]).await.unwrap();
        }
        "INSERT" => {
            let lane = on.one("select queue.lane_id('default', 'do', 100, false)").await;
            operate::insert_all(on, &[(lane, false)]).await.unwrap();
        }
        "RANK" => on.run("select queue.set_priority_all(array(select id from queue.job), 100)").await,
        step => on.run(step).await,
    }
}

async fn housekeep(on: &mut PgConnection, step: Step) {
    if !matches!(step, Step::Commit) {
        on.run("begin").await;
    }
    match step {
        Step::Leave => drop(lanes::leave_lanes(on, -1.0, 10).await.unwrap()),
        Step::Pass => {
            let unseen = lanes::unseen_lanes(on).await.unwrap();
            lanes::pass_lanes(on, &unseen, 10).await.unwrap();
        }
        Step::Forget => {
            lanes::replaced_lanes(on, 10).await.unwrap();
            lanes::walk_lanes(on).await.unwrap();
        }
        Step::Commit => on.run("commit").await,
    }
}

/// Returns all interleavings of two sequences with these lengths. `true` stands for a step of the first sequence.
fn orders(one: usize, other: usize) -> Vec<Vec<bool>> {
    if one == 0 || other == 0 {
        return vec![[vec![true; one], vec![false; other]].concat()];
    }
    let begun = |first: bool, rest: Vec<Vec<bool>>| rest.into_iter().map(move |rest| [vec![first], rest].concat());
    begun(true, orders(one - 1, other)).chain(begun(false, orders(one, other - 1))).collect()
}

#[tokio::test]
#[ignore = "deep"]
async fn no_job_is_left_without_its_lane_in_any_order_of_its_producer_and_housekeeping() {
    let db = TestDb::new().await;
    let (mut producer, mut housekeeper, mut on) = (db.connect().await, db.connect().await, db.connect().await);
    for waiter in [&mut producer, &mut housekeeper] {
        waiter.execute("set lock_timeout = '2s'").await.unwrap();
    }
    let (mut plays, mut gone) = (0, 0);
    for (name, steps) in PRODUCERS {
        for order in orders(steps.len(), STEPS.len()) {
            on.execute(
                "delete from queue.ready; delete from queue.active_key; delete from queue.job; delete from queue.lane;
                 select queue.ensure_lane('default', 'do', 100, false)",
            )
            .await
            .unwrap();
            let (mut ours, mut theirs) = (steps.iter(), STEPS.iter());
            for producers in &order {
                if *producers {
                    produce(&mut producer, ours.next().unwrap()).await;
                } else {
                    housekeep(&mut housekeeper, *theirs.next().unwrap()).await;
                }
            }
            let left = "select (select count(*) from queue.job j where exists (select from queue.lane l where l.lane = j.lane)),
                (select count(*) from queue.lane where leaving is not null)";
            let (jobs, leaving): (i64, i64) = sqlx::query_as(left).fetch_one(&mut on).await.unwrap();
            assert_eq!(jobs, 1, "{name}: {order:?}");
            gone += i64::from(leaving == 0);
            plays += 1;
        }
    }
    assert!(plays == 6 * 165 && gone > 0, "{plays} plays, {gone} with a row that went: none may while other sessions see it");
    for mut on in [producer, housekeeper] {
        on.ping().await.unwrap();
    }
    db.finish().await;
}
