//! Tests that a flow cannot block another flow. Covers the limit on work per pass, the locks of a cancellation, and the rejection of
//! flows that an operator could not cancel.

use std::time::Duration;

use queue_core::{
    Job as _, JobId, JobState, OnConflict, Queue,
    flow::{Flow, IfDead, NodeOutput},
};
use sqlx::Connection as _;
use tests::{Sql as _, TestDb, die};

use super::{Act, db, end, give, part, states};

async fn release(db: &TestDb, most: i32) -> (i32, bool) {
    db.run("select queue.consume_end_hints(0, 1000)").await;
    sqlx::query_as("select moved, more from queue.release_nodes(0, $1)").bind(most).fetch_one(&db.pool).await.unwrap()
}

#[tokio::test]
async fn a_flow_that_would_become_gigabytes_is_refused_before_it_is_built() {
    let db = db().await;
    let mut flow = Flow::new("huge");
    let large = flow.add("large", give("large", []));
    let many: Vec<NodeOutput<String>> = (0..4500).map(|_| large.output()).collect();
    let huge = flow.add("huge", give("huge", many));
    let fine = flow.add("fine", give("fine", [large.output()]));
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let mut on = db.pool.acquire().await.unwrap();
    end(&mut on, flow.job(&large).id(), "to_jsonb(repeat('x', 200000))").await;
    // If the pass copied a gigabyte of text, it would exceed the timeout and need far more memory.
    on.run("set statement_timeout = '15s'").await;
    let moved: i32 = on.one("select moved from queue.release_nodes(0, 1000)").await;
    on.run("reset statement_timeout").await;
    drop(on);
    assert_eq!(moved, 2);
    assert_eq!(states(&db, &flow).await, ["large completed", "huge dead", "fine ready"]);
    let error: String = db.one(&format!("select error from queue.dead where id = {0}", flow.job(&huge).id())).await;
    assert!(error.contains("its payload has 9") && error.contains("the limit is"), "{error}");
    let _ = flow.job(&fine);
    db.finish().await;
}

/// A pass over a wide flow releases at most 64 nodes with outputs in their payloads, or up to `most` nodes without outputs.
#[tokio::test]
async fn a_pass_takes_some_edges_fills_few_payloads_and_reports_that_there_are_more() {
    for (nodes, filled, most, expected) in
        [(150, true, 1000, [(64, true), (64, true), (22, false)]), (25, false, 10, [(10, true), (10, true), (5, false)])]
    {
        let db = db().await;
        let mut flow = Flow::new("wide");
        let root = flow.add("root", give("root", []));
        for n in 0..nodes {
            if filled {
                flow.add(format!("n{n}"), give("n", [root.output()]));
            } else {
                flow.add(format!("n{n}"), give("n", [])).after(&root);
            }
        }
        let root = flow.enqueue(&db.pool).await.unwrap().job(&root).id();
        end(&mut db.pool.acquire().await.unwrap(), root, "'\"given\"'").await;
        assert_eq!([release(&db, most).await, release(&db, most).await, release(&db, most).await], expected);
        assert_eq!(db.rows_of(&["node_hint", "parked"]).await, 0);
        db.finish().await;
    }
}

#[tokio::test]
async fn a_pass_cancels_nodes_of_many_jobs_one_after_the_other() {
    let db = db().await;
    let mut flow = Flow::new("stopped");
    let bad = flow.add("bad", part("bad", Act::Fail, [])).if_dead(IfDead::Cancel);
    for n in 0..3 {
        flow.add_all(format!("n{n}"), (0..4).map(|_| give("n", []))).after(&bad);
    }
    let bad = flow.enqueue(&db.pool).await.unwrap().job(&bad);
    bad.cancel(&db.pool).await.unwrap();
    let mut seen = Vec::new();
    while release(&db, 1000).await.1 {
        seen.push(db.count("select count(*) from queue.done where cancelled").await);
    }
    assert_eq!(seen, [6, 11, 16], "each with its four jobs");
    db.finish().await;
}

#[tokio::test]
async fn a_locked_node_of_many_jobs_delays_no_other() {
    let db = db().await;
    let (mut stopped, mut other) = (Flow::new("stopped"), Flow::new("other"));
    let bad = stopped.add("bad", part("bad", Act::Fail, [])).if_dead(IfDead::Cancel);
    let many = stopped.add_all("many", (0..4).map(|_| give("n", []))).after(&bad);
    let first = other.add("first", give("first", []));
    let free = other.add("free", give("free", [])).after(&first);
    let (stopped, other) = (stopped.enqueue(&db.pool).await.unwrap(), other.enqueue(&db.pool).await.unwrap());
    let (many, free) = (stopped.job(&many).id(), other.job(&free).id());
    stopped.job(&bad).cancel(&db.pool).await.unwrap();
    let (mut on, mut holder) = (db.connect().await, db.connect().await);
    end(&mut on, other.job(&first).id(), "'\"given\"'").await;
    let mut held = holder.begin().await.unwrap();
    sqlx::query("select from queue.gather where parent = $1 for update").bind(many).execute(&mut *held).await.unwrap();
    on.run("set lock_timeout = '1s'; select queue.release_nodes(0, 1000)").await;
    assert_eq!((db.state(free).await, db.state(many).await), (Some(JobState::Ready), Some(JobState::Parked)));
    held.rollback().await.unwrap();
    while release(&db, 1000).await.1 {}
    assert_eq!(db.state(many).await, Some(JobState::Cancelled));
    drop((on, holder));
    db.finish().await;
}

/// The number of cancelled nodes exceeds the number of payloads that a pass fills. Another session has locked the edge of the first
/// cancelled node. A single pass must nevertheless release all remaining nodes.
#[tokio::test]
async fn nodes_that_no_longer_wait_take_no_share_of_a_pass() {
    let db = db().await;
    let mut flow = Flow::new("left");
    let root = flow.add("root", give("root", []));
    let leaves: Vec<_> = (0..90).map(|n| flow.add(format!("n{n}"), give("n", [root.output()]))).collect();
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let gone: Vec<JobId> = leaves.iter().take(80).map(|leaf| flow.job(leaf).id()).collect();
    let cancelled: i64 =
        sqlx::query_scalar("select count(*) from queue.cancel_waiting_all($1)").bind(&gone).fetch_one(&db.pool).await.unwrap();
    assert_eq!(cancelled, 80);
    end(&mut db.pool.acquire().await.unwrap(), flow.job(&root).id(), "'\"given\"'").await;
    let mut other = db.connect().await;
    let mut held = other.begin().await.unwrap();
    sqlx::query("select from queue.edge where target = $1 for update").bind(gone[0]).execute(&mut *held).await.unwrap();
    let mut tx = db.pool.begin().await.unwrap();
    tx.run("set local lock_timeout = '1s'").await;
    let seen: (i32, bool) = sqlx::query_as("select moved, more from queue.release_nodes(0, 1000)").fetch_one(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(seen, (10, false));
    held.rollback().await.unwrap();
    drop(other);
    assert_eq!(db.count("select count(*) from queue.ready").await, 10);
    assert_eq!(db.count("select count(*) from queue.node_hint").await, 0);
    assert_eq!(db.count("select count(*) from queue.edge").await, 1, "the locked one is left to housekeeping");
    db.finish().await;
}

/// Two nodes are running, each under its own lease. Another session has locked the second lease. The cancellation of the flow must not
/// delay the verdict of the first node.
#[tokio::test]
async fn the_cancellation_of_a_flow_delays_no_verdict() {
    let db = db().await;
    let mut flow = Flow::new("running");
    let (a, b) = (flow.add("a", give("a", [])), flow.add("b", give("b", [])));
    let flow = flow.enqueue(&db.pool).await.unwrap();
    for job in [flow.job(&a).id(), flow.job(&b).id()] {
        db.run(&format!(
            "delete from queue.ready where id = {job}; insert into queue.lease (token, worker, ids, attempts, crashes)
            values (gen_random_uuid(), gen_random_uuid(), '{{{job}}}', '{{1}}', '{{0}}')"
        ))
        .await;
    }
    let (mut holder, mut settler) = (db.connect().await, db.connect().await);
    let mut held = holder.begin().await.unwrap();
    held.run(&format!("select from queue.lease where {0} = any (ids) for update", flow.job(&b).id())).await;
    let queue = Queue::new(&db.pool);
    let flow_job = queue.job(flow.id());
    let cancelling = flow_job.cancel_flow();
    let settling = async {
        // Lock the first lease repeatedly, as a settle does. This is not delayed, because the cancellation holds no lease lock while it
        // sleeps between its attempts to lock the second lease.
        for _ in 0..20 {
            let mut tx = settler.begin().await.unwrap();
            tx.run("set local lock_timeout = '400ms'").await;
            let free = sqlx::query("select from queue.lease where $1 = any (ids) for update").bind(flow.job(&a).id());
            free.execute(&mut *tx).await.unwrap();
            tx.rollback().await.unwrap();
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    };
    let (count, ()) = tokio::join!(cancelling, settling);
    assert!(count.unwrap() <= 1, "a lease that is locked at that moment is skipped, as a settle may have the first");
    assert_eq!(Queue::new(&db.pool).job(flow.id()).cancel_flow().await.unwrap(), 1, "and the second is");
    held.rollback().await.unwrap();
    assert_eq!(Queue::new(&db.pool).job(flow.id()).cancel_flow().await.unwrap(), 2);
    drop((holder, settler));
    let statement = "with gone as (delete from queue.lease returning ids)
        insert into queue.done (id, finished_at, ran_ms, attempts, cancelled) select u.id, now(), 1, 1, true from gone cross join unnest(gone.ids) u (id)";
    db.run(statement).await;
    db.finish().await;
}

#[tokio::test]
async fn a_node_is_no_existing_job() {
    let db = db().await;
    give("before", []).enqueue(&db.pool).unique("k").await.unwrap();
    let mut flow = Flow::new("adopts");
    flow.add("first", give("first", [])).with(|job| job.unique("k").on_conflict(OnConflict::Replace));
    let error = flow.enqueue(&db.pool).await.unwrap_err().to_string();
    assert!(error.contains("first") && error.contains("uniqueness key"), "{error}");
    let nodes = r#"[{"name": "first", "job_type": "flow_part", "payload": 1, "options": {"unique_key": "k", "on_conflict": "replace"}}]"#;
    let refused = flow_error(&db, nodes).await;
    assert!(refused.contains("uniqueness key"), "{refused}");
    assert_eq!(db.count("select count(*) from queue.job").await, 1);
    db.finish().await;
}

/// Executes `link_flow.sql` directly with invalid input: one job for two nodes, then more than 100,000 edges.
#[tokio::test]
async fn a_job_is_one_node_of_a_flow_with_a_bounded_number_of_edges() {
    let db = db().await;
    for (twice, edges, fault) in [(true, 0, "is not a new job"), (false, 100_001, "at most 100000 edges")] {
        let mut tx = db.pool.begin().await.unwrap();
        let mut ids = Vec::new();
        for _ in 0..2 {
            let id = give("node", []).enqueue(&mut tx).await.unwrap().id();
            let mark = "update queue.job set system = coalesce(system, '{}') || '{\"node_of\": \"1\"}' where id = $1";
            sqlx::query(mark).bind(id).execute(&mut *tx).await.unwrap();
            ids.push(id);
        }
        if twice {
            ids[1] = ids[0];
        }
        let link = sqlx::query(include_str!("../../../queue-core/sql/link_flow.sql")).bind(&ids).bind(["a", "b"]);
        let link = link.bind(vec![1; edges]).bind(vec![2; edges]).bind(vec![false; edges]).bind(vec!["hold"; edges]);
        let error = link.bind(vec![false; edges]).execute(&mut *tx).await.unwrap_err().to_string();
        assert!(error.contains(fault), "{fault}: {error}");
        tx.rollback().await.unwrap();
    }
    db.finish().await;
}

/// Returns the error message of `queue.enqueue_flow` for `nodes`, or an empty string.
async fn flow_error(db: &TestDb, nodes: &str) -> String {
    let result = sqlx::query("select queue.enqueue_flow('said', $1::text::jsonb)").bind(nodes).execute(&db.pool).await;
    result.map_or_else(|error| error.to_string(), |_| String::new())
}

#[tokio::test]
async fn an_unknown_option_of_a_flow_is_refused() {
    let db = db().await;
    let after = |rest: &str| format!(r#"[{{"name": "a", "job_type": "t", "payload": 1}}, {{"name": "b", "job_type": "t", {rest}}}]"#);
    for (rest, expected) in [
        (r#""payload": 1, "aftr": ["a"]"#, "unknown key \"aftr\""),
        (r#""payload": 1, "after": ["c"]"#, "waits for \"c\""),
        (r#""payload": 1, "if_dead": "weep""#, "other than hold"),
        (r#""payload": {"x": {"$of": "a", "default": 1}}"#, "other keys beside it"),
        (r#""payload": {"x": {"$of": 7}}"#, "not in the flow"),
        (r#""jobs": [{"x": {"$of": "a"}}]"#, "cannot contain placeholders"),
        (r#""jobs": 7"#, "not an array"),
        (r#""jobs": [1], "payload": 1"#, "both jobs and a payload"),
        (r#""jobs": [1], "payload": null, "in_flight": 1"#, ""),
        (r#""payload": 1, "in_flight": 1"#, "but no array of jobs"),
        (r#""payload": 1, "in_flight": null"#, ""),
        (r#""jobs": [1], "options": {"expires_in": 5}"#, ""),
        (r#""payload": {}, "after": ["a"], "options": {"key": "k"}"#, "cannot have an ordering key"),
        (r#""after": ["a"], "jobs": [1], "options": {"key": "k"}"#, "cannot have an ordering key"),
        (r#""payload": {}}, {"name": "a", "job_type": "t", "payload": 1"#, "appears twice"),
        (r#""payload": {}, "after": ["z"]}, {"name": "z", "job_type": "t", "payload": 1"#, "precedes"),
    ] {
        let error = flow_error(&db, &after(rest)).await;
        assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{rest}: {error}");
    }
    let mut flow = Flow::new("expires");
    flow.add_all("many", (0..2).map(|_| give("many", []))).with(|job| job.expires_in(Duration::from_secs(1)));
    assert!(flow.enqueue(&db.pool).await.unwrap_err().to_string().contains("cannot expire"));
    db.finish().await;
}

#[tokio::test]
async fn the_jobs_of_a_node_that_never_begins_are_cancelled_without_running() {
    let db = db().await;
    let mut flow = Flow::new("never");
    let first = flow.add("first", give("first", []));
    let many = flow.add_all("many", (0..3).map(|_| give("many", []))).each(|job| job.queue("imports")).after(&first);
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let many = flow.job(&many).id();
    assert_eq!(db.count("select count(*) from queue.jobs where queue = 'imports'").await, 4, "the node goes where its jobs go");
    let ids: Vec<JobId> = db.all("select id from queue.parked").await;
    assert_eq!((ids.len(), db.count("select count(*) from queue.run_now_all(array(select id from queue.parked))").await), (4, 0));
    // The node becomes a dead letter before its jobs start and is discarded.
    die(&mut db.pool.acquire().await.unwrap(), many).await;
    queue_core::JobRef::from_id(many).discard(&db.pool).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.done where cancelled").await, 3);
    assert_eq!(db.count("select (select count(*) from queue.parked) + (select count(*) from queue.gather)").await, 0);
    db.finish().await;
}

/// A node is cancelled while an uncommitted transaction releases some of its jobs. The released jobs must be cancelled as well.
#[tokio::test]
async fn a_job_released_during_a_cancel_is_cancelled() {
    let db = db().await;
    let mut flow = Flow::new("ramp");
    let many = flow.add_all("many", (0..6).map(|_| give("many", []))).in_flight(2);
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let many = flow.job(&many).id();
    db.run(&format!("update queue.gather set room = 3 where parent = {many}; insert into queue.gather_hint (parent, born, name, completed, dead, cancelled, freed)
        select parent, born, name, 0, 0, 0, 0 from queue.gather")).await;
    let mut other = db.connect().await;
    let mut consumer = other.begin().await.unwrap();
    let moved: i32 = sqlx::query_scalar("select moved from queue.count_gathers(0, 100)").fetch_one(&mut *consumer).await.unwrap();
    assert_eq!(moved, 3);
    let cancelling = async { queue_core::JobRef::from_id(many).cancel(&db.pool).await.unwrap() };
    let committing = async {
        db.until_waiting(1).await;
        consumer.commit().await.unwrap();
    };
    tokio::join!(cancelling, committing);
    assert_eq!(db.count("select count(*) from queue.done where cancelled").await, 7);
    assert_eq!(db.count("select (select count(*) from queue.ready) + (select count(*) from queue.parked)").await, 0);
    assert_eq!(db.state(many).await, Some(JobState::Cancelled));
    drop(other);
    db.finish().await;
}
