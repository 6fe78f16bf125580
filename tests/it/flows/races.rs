//! Tests predecessors that end concurrently, in every order. A node is released once, and no release is lost.

use queue_core::{
    JobId, JobState,
    flow::{Flow, FlowHandle},
};
use sqlx::{Connection as _, PgConnection};
use tests::{Sql as _, TestDb};

use super::{db, end, give, worker};

#[tokio::test]
#[ignore = "deep"]
async fn two_workers_release_every_node_once() {
    let db = db().await;
    let mut lasts = Vec::new();
    for _ in 0..150 {
        let mut flow = Flow::new("race");
        let sources: Vec<_> = (0..4).map(|n| flow.add(format!("s{n}"), give("s", []))).collect();
        let both = flow.add("both", give("both", sources.iter().map(queue_core::flow::Node::output)));
        let beside = flow.add("beside", give("beside", [])).after(&sources[0]).after(&sources[3]);
        let last = flow.add("last", give("last", [both.output(), beside.output()]));
        lasts.push(flow.enqueue(&db.pool).await.unwrap().job(&last).id());
    }
    db.run_while(
        worker(&db),
        db.run_while(worker(&db), async {
            db.until_count("select count(*) from queue.jobs where state <> 'completed'", 0).await;
            // A full pass leaves the remaining hints for the next pass.
            db.until_count("select count(*) from queue.node_hint", 0).await;
        }),
    )
    .await;
    assert_eq!(db.count("select count(*) from ran").await, 150 * 7);
    assert_eq!(db.count("select count(distinct job) from ran").await, 150 * 7, "none ran twice");
    let right = sqlx::query_scalar::<_, i64>(
        "select count(*) from queue.done where id = any ($1) and output = '\"last(both(s() s() s() s()) beside())\"'",
    );
    assert_eq!(right.bind(&lasts).fetch_one(&db.pool).await.unwrap(), 150);
    assert_eq!(db.count("select (select count(*) from queue.edge) + (select count(*) from queue.node_hint)").await, 0);
    db.finish().await;
}

/// Creates a flow with a node that depends on two other nodes. Returns the three jobs.
async fn fan_in(db: &TestDb) -> (FlowHandle, [JobId; 3]) {
    let mut flow = Flow::new("fan in");
    let (a, b) = (flow.add("a", give("a", [])), flow.add("b", give("b", [])));
    let both = flow.add("both", give("both", [a.output(), b.output()]));
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let ids = [flow.job(&a).id(), flow.job(&b).id(), flow.job(&both).id()];
    (flow, ids)
}

/// Runs one pass of the statement that releases nodes. Returns the number of released nodes.
async fn release(on: &mut PgConnection) -> i32 {
    let statement = sqlx::query_as(include_str!("../../../queue-worker/sql/release_nodes.sql")).bind(0_i64).bind(1000);
    let row: (i32, Option<i64>, i32, bool) = statement.fetch_one(on).await.unwrap();
    row.2
}

#[tokio::test]
async fn ends_and_consumers_in_open_transactions_release_a_node_once() {
    let db = db().await;
    let mut on = Vec::new();
    for _ in 0..4 {
        on.push(db.connect().await);
    }
    let [one, other, probe, again] = &mut on[..] else { unreachable!("four were made") };
    for rounds in 0..6 {
        let (_, [a, b, both]) = fan_in(&db).await;
        let (mut first, mut second) = (one.begin().await.unwrap(), other.begin().await.unwrap());
        end(&mut first, a, "'\"x\"'").await;
        end(&mut second, b, "'\"x\"'").await;
        assert_eq!(release(probe).await, 0, "neither is committed");
        if rounds % 2 == 0 {
            first.commit().await.unwrap();
            assert_eq!(release(probe).await, 0, "one of two");
            second.commit().await.unwrap();
            assert_eq!(release(probe).await, 1);
        } else {
            // A consumer processes the end of the first node while the second node ends.
            first.commit().await.unwrap();
            let mut slow = probe.begin().await.unwrap();
            assert_eq!(release(&mut slow).await, 0);
            second.commit().await.unwrap();
            assert_eq!(release(again).await, 0, "the other consumer has its entry");
            if rounds % 3 == 0 {
                slow.rollback().await.unwrap();
            } else {
                slow.commit().await.unwrap();
            }
            assert_eq!((release(again).await, release(again).await), (1, 0));
        }
        assert_eq!(db.state(both).await, Some(JobState::Ready));
    }
    // An end that is rolled back releases no node.
    let (_, [a, _, both]) = fan_in(&db).await;
    let mut first = one.begin().await.unwrap();
    end(&mut first, a, "'\"x\"'").await;
    first.rollback().await.unwrap();
    assert_eq!((release(probe).await, db.state(both).await), (0, Some(JobState::Parked)));
    drop(on);
    db.run("delete from queue.edge; delete from queue.node").await;
    db.finish().await;
}

#[tokio::test]
async fn a_locked_node_stops_no_other_node() {
    let db = db().await;
    let (mut on, mut holder) = (db.connect().await, db.connect().await);
    on.run("set lock_timeout = '5s'").await;
    for (table, column) in [("parked", "id"), ("job", "id"), ("edge", "target")] {
        let (_, [a, b, both]) = fan_in(&db).await;
        let (_, [c, d, free]) = fan_in(&db).await;
        for job in [a, b, c, d] {
            end(&mut on, job, "'\"x\"'").await;
        }
        let mut held = holder.begin().await.unwrap();
        let lock = sqlx::AssertSqlSafe(format!("select from queue.{table} where {column} = $1 for update"));
        sqlx::query(lock).bind(both).execute(&mut *held).await.unwrap();
        assert_eq!((release(&mut on).await, release(&mut on).await), (1, 0), "{table}");
        assert_eq!((db.state(free).await, db.state(both).await), (Some(JobState::Ready), Some(JobState::Parked)));
        held.rollback().await.unwrap();
        assert_eq!(release(&mut on).await, 1);
    }
    drop((on, holder));
    db.finish().await;
}

/// Another session has locked more nodes than a single pass can release. A pass fills the payloads of at most 64 nodes.
#[tokio::test]
async fn locked_nodes_do_not_block_others_and_a_pass_that_releases_none_is_followed_by_a_pause() {
    let db = db().await;
    let (mut on, mut holder) = (db.connect().await, db.connect().await);
    for (table, column) in [("parked", "id"), ("job", "id"), ("edge", "target")] {
        let mut flow = Flow::new("wide");
        let root = flow.add("root", give("root", []));
        let leaves: Vec<_> = (0..100).map(|n| flow.add(format!("n{n}"), give("n", [root.output()]))).collect();
        let flow = flow.enqueue(&db.pool).await.unwrap();
        let leaves: Vec<JobId> = leaves.iter().map(|leaf| flow.job(leaf).id()).collect();
        let (locked, free) = leaves.split_at(80);
        end(&mut on, flow.job(&root).id(), "'\"x\"'").await;
        let mut held = holder.begin().await.unwrap();
        let lock = sqlx::AssertSqlSafe(format!("select from queue.{table} where {column} = any ($1) for update"));
        sqlx::query(lock).bind(locked).execute(&mut *held).await.unwrap();
        let statement = include_str!("../../../queue-worker/sql/release_nodes.sql");
        let mut released = 0;
        while released < 20 {
            let (_, _, moved, more): (i32, Option<i64>, i32, bool) =
                sqlx::query_as(statement).bind(0_i64).bind(1000).fetch_one(&mut on).await.unwrap();
            assert!(more || moved == 0, "{table}: there are more");
            released += moved;
        }
        let ready: Vec<JobId> = on.all("select id from queue.ready order by id").await;
        assert_eq!(ready, free, "{table}");
        let (hints, _, moved, more): (i32, Option<i64>, i32, bool) =
            sqlx::query_as(statement).bind(0_i64).bind(1000).fetch_one(&mut on).await.unwrap();
        assert_eq!((hints, moved, more, on.one::<i64>("select count(*) from queue.node_hint").await), (0, 0, false, 1), "{table}");
        held.rollback().await.unwrap();
        let moved = [release(&mut on).await, release(&mut on).await, release(&mut on).await];
        assert_eq!(moved, [64, 16, 0], "{table}");
        on.run("delete from queue.ready; delete from queue.done; delete from queue.node; delete from queue.job").await;
    }
    drop((on, holder));
    db.finish().await;
}
