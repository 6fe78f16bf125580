//! Tests nodes with many jobs, nested flows, and a job that runs after another job.

use std::time::Duration;

use queue_core::{
    Handler, Job as _, JobId, JobResult, JobState, Queue,
    flow::{Counts, Flow, FlowHandle, IfDead, Nested, Node, NodeOutput},
    job,
};
use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use tests::{TestDb, eventually, within};

use super::{Act, db, give, output, part, settle, states};

/// Node job that receives the counts of another node's jobs.
#[job(name = "flow_report", output = Counts)]
#[derive(Serialize, Deserialize)]
struct Report {
    rows: NodeOutput<Counts>,
}

impl Handler for Report {
    async fn run(self, cx: &queue_core::Context) -> JobResult<Counts> {
        sqlx::query("insert into ran (job) values ($1)").bind(cx.id()).execute(cx.pool()).await?;
        self.rows.into_value()
    }
}

fn worker(db: &TestDb) -> queue_worker::Worker {
    super::worker(db).register::<Report>()
}

async fn counted<J>(db: &TestDb, flow: &FlowHandle, node: &Node<J>) -> serde_json::Value {
    db.one(&format!("select output from queue.done where id = {0}", flow.job(node).id())).await
}

async fn wait_for_state<J>(db: &TestDb, flow: &FlowHandle, node: &Node<J>, state: JobState) {
    let job = flow.job(node).id();
    db.run_while(worker(db), async {
        within(Duration::from_mins(2), "it has finished", async || db.state(job).await == Some(state)).await;
    })
    .await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_node_of_many_jobs_has_completed_once_all_have_finished() {
    let db = db().await;
    let mut flow = Flow::new("import");
    let acts = |n| if n % 100 == 7 { Act::Fail } else { Act::Give };
    let rows = flow.add_all("rows", (0..2500).map(move |n| part("row", acts(n), []))).in_flight(40);
    let report = flow.add("report", Report { rows: rows.output() });
    let beside = flow.add_all("beside", (0..3).map(|_| give("b", []))).each(|job| job.queue("nobody"));
    let none = flow.add_all("none", std::iter::empty::<Report>());
    let last = flow.add("last", give("last", [])).after(&report).after(&none);
    let flow = flow.enqueue(&db.pool).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.parked").await, 2500 - 40 + 2, "what has no room, and two nodes");
    wait_for_state(&db, &flow, &last, JobState::Completed).await;
    let counts = counted(&db, &flow, &report).await;
    assert_eq!(counts, serde_json::json!({"total": 2500, "completed": 2475, "dead": 25, "cancelled": 0}));
    assert_eq!(db.count("select count(distinct job) from ran").await, 2502, "each ran");
    let ends = ["rows completed", "report completed", "beside ready", "none completed", "last completed"];
    assert_eq!(states(&db, &flow).await, ends);
    let nodes = Queue::new(&db.pool).job(flow.id()).flow().await.unwrap();
    let jobs: Vec<_> = nodes.iter().map(|node| (node.jobs, node.over)).collect();
    assert_eq!(jobs, [(Some(2500), Some(2500)), (None, None), (Some(3), Some(0)), (Some(0), Some(0)), (None, None)]);
    // Cancelling a node also cancels the jobs of the node.
    flow.job(&beside).cancel(&db.pool).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.jobs where state = 'cancelled'").await, 4);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_node_of_many_jobs_begins_once_the_node_before_it_has_completed() {
    let db = db().await;
    let mut flow = Flow::new("waits");
    let first = flow.add("first", part("first", Act::Fail, []));
    let all = flow.add_all("all", (0..1200).map(|_| give("all", []))).after(&first);
    let some = flow.add_all("some", (0..30).map(|_| give("some", []))).in_flight(4).after(&first);
    let stopped = flow.add("stopped", part("stopped", Act::Fail, [])).if_dead(IfDead::Cancel);
    let never = flow.add_all("never", (0..30).map(|_| give("never", []))).after(&stopped);
    let report = flow.add("report", Report { rows: some.output() }).after(&all);
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let first = flow.job(&first);
    db.run_while(worker(&db), async {
        db.until(first.id(), JobState::Dead).await;
        db.until(flow.job(&never).id(), JobState::Cancelled).await;
        db.until_count("select count(*) from queue.node_hint", 0).await;
    })
    .await;
    assert_eq!(db.count("select count(*) from ran").await, 2, "none of the others ran");
    assert_eq!(db.count("select count(*) from queue.jobs where state = 'cancelled'").await, 31);
    db.run("insert into mended default values").await;
    first.requeue(&db.pool).await.unwrap();
    wait_for_state(&db, &flow, &report, JobState::Completed).await;
    assert_eq!(counted(&db, &flow, &all).await["completed"], 1200);
    assert_eq!(counted(&db, &flow, &report).await["completed"], 30);
    assert_eq!(db.count("select count(*) from (select job from ran group by job having count(*) > 1) twice").await, 1, "first alone");
    db.finish().await;
}

/// Two attempts open the node, but at most `in_flight` jobs of the node are released.
#[tokio::test]
async fn a_node_is_opened_once_and_runs_at_most_its_maximum() {
    let db = db().await;
    let mut flow = Flow::new("window");
    let first = flow.add("first", give("first", []));
    let some = flow.add_all("some", (0..30).map(|_| give("some", []))).in_flight(4).after(&first).with(|job| job.queue("nobody"));
    let some_id = {
        let flow = flow.enqueue(&db.pool).await.unwrap();
        flow.job(&some).id()
    };
    let open = async || {
        sqlx::query(include_str!("../../../queue-core/sql/open_gather.sql")).bind(some_id).execute(&db.pool).await.unwrap();
        db.run("select queue.count_gathers(0, 100)").await;
        db.count("select count(*) from queue.gather_part p where not p.held").await
    };
    assert_eq!((open().await, open().await), (4, 4));
    db.finish().await;
}

#[tokio::test]
async fn nodes_of_many_jobs_in_sql() {
    let db = db().await;
    let nodes = r#"[
        {"name": "first", "job_type": "flow_part", "payload": {"text": "first", "act": "Give", "from": []}},
        {"name": "rows", "job_type": "flow_part", "in_flight": 2, "after": ["first"], "options": {"max_attempts": 1},
         "jobs": [{"text": "1", "act": "Give", "from": []}, {"text": "2", "act": "Fail", "from": []}, {"text": "3", "act": "Give", "from": []}]},
        {"name": "report", "job_type": "flow_report", "payload": {"rows": {"$of": "rows"}}}]"#;
    let flow: JobId =
        sqlx::query_scalar("select queue.enqueue_flow('sql', $1::text::jsonb)").bind(nodes).fetch_one(&db.pool).await.unwrap();
    let nodes = Queue::new(&db.pool).job(flow).flow().await.unwrap();
    db.run_while(worker(&db), db.until(nodes[2].id, JobState::Completed)).await;
    let output: serde_json::Value =
        sqlx::query_scalar("select output from queue.done where id = $1").bind(nodes[2].id).fetch_one(&db.pool).await.unwrap();
    assert_eq!(output, serde_json::json!({"total": 3, "completed": 2, "dead": 1, "cancelled": 0}));
    db.finish().await;
}

#[tokio::test]
async fn a_job_of_another_transaction_or_one_that_would_not_wait_is_refused_as_a_part() {
    let db = db().await;
    let other = give("other", []).enqueue(&db.pool).await.unwrap().id();
    let add = include_str!("../../../queue-core/sql/add_parts.sql");
    let cases = [
        ("another transaction's", 2, "parts must be new jobs"),
        ("marked as no part", 2, "parts must be new jobs"),
        ("one too many", 100_000, "at most 100000 jobs"),
        ("of a later time", 2, "or run_at"),
    ];
    for (which, first, fault) in cases {
        let mut tx = db.pool.begin().await.unwrap();
        let mut flow = Flow::new("thief");
        let before = flow.add("before", give("before", []));
        let many = flow.add_all("many", (0..2).map(|_| give("many", []))).after(&before);
        let node = flow.enqueue(&mut tx).await.unwrap().job(&many).id();
        let part = match which {
            "another transaction's" => other,
            "of a later time" => give("part", []).enqueue(&mut tx).after(Duration::from_hours(1)).await.unwrap().id(),
            _ => give("part", []).enqueue(&mut tx).await.unwrap().id(),
        };
        if which != "marked as no part" {
            let mark = sqlx::query("update queue.job set system = coalesce(system, '{}') || '{\"part_of\": \"1/jobs\"}' where id = $1");
            // The mark `part_of` counts only if the node's own transaction has written it.
            let marked = if part == other { mark.bind(part).execute(&db.pool).await } else { mark.bind(part).execute(&mut *tx).await };
            marked.unwrap();
        }
        let add = sqlx::query(add).bind(node).bind(1).bind(i64::from(first)).bind([part]).bind(None::<i32>).bind(None::<i64>);
        let error = add.execute(&mut *tx).await.unwrap_err();
        assert!(error.to_string().contains(fault), "{which}: {error}");
        tx.rollback().await.unwrap();
    }
    for (most, unique) in [(0, false), (1, true)] {
        let mut flow = Flow::new("faulty");
        let many = flow.add_all("many", (0..2).map(|_| give("many", []))).in_flight(most);
        drop(many.each(|job| if unique { job.unique("k") } else { job }));
        let error = flow.enqueue(&db.pool).await.unwrap_err().to_string();
        assert!(error.contains("many") && error.contains(if unique { "uniqueness key" } else { "in_flight" }), "{error}");
    }
    assert_eq!(db.count("select count(*) from queue.job").await, 1);
    db.finish().await;
}

fn bill(flow: &mut Nested) -> Node<super::Part> {
    let charge = flow.add("charge", give("charge", []));
    flow.add("stamp", give("stamp", [])).after(&charge);
    flow.add("receipt", give("receipt", [charge.output()]))
}

#[tokio::test]
async fn a_nested_flow_is_waited_for_as_one_and_waits_as_one() {
    let db = db().await;
    let mut flow = Flow::new("order");
    let stock = flow.add("stock", give("stock", []));
    let mut billing = flow.nested("bill").after(&stock);
    let receipt = bill(&mut billing);
    let mut inner = billing.nested("inner").after(&receipt);
    inner.add("deep", give("deep", []));
    let ship = flow.add("ship", give("ship", [receipt.output()])).after(&billing);
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let nodes = Queue::new(&db.pool).job(flow.id()).flow().await.unwrap();
    let edges: Vec<String> = nodes.iter().map(|node| format!("{}: {}", node.name, node.after.join(" "))).collect();
    let expected = [
        "stock: ",
        "bill/charge: stock",
        "bill/stamp: bill/charge",
        "bill/receipt: bill/charge",
        "bill/inner/deep: bill/receipt",
        "ship: bill/stamp bill/receipt bill/inner/deep",
    ];
    assert_eq!(edges, expected);
    wait_for_state(&db, &flow, &ship, JobState::Completed).await;
    assert_eq!(output(&db, &flow, &ship).await, "ship(receipt(charge()))");

    let mut empty = Flow::new("empty");
    let nested = empty.nested("nothing");
    drop(empty.add("after", give("after", [])).after(&nested));
    assert!(empty.enqueue(&db.pool).await.unwrap_err().to_string().contains("without nodes"));
    let mut early = Flow::new("early");
    let late = early.add("late", give("late", []));
    let mut alien = Flow::new("alien").nested("alien").after(&late);
    alien.add("node", give("node", []));
    drop(early.add("after", give("after", [])).after(&alien));
    assert!(early.enqueue(&db.pool).await.unwrap_err().to_string().contains("of another flow"));
    db.finish().await;
}

#[tokio::test]
async fn jobs_run_one_after_another() {
    let db = db().await;
    let flow = give("a", []).then(|a| give("b", [a])).then(|_| Report { rows: NodeOutput::ended_as("gone") }).then(|_| give("never", []));
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let names: Vec<(String, JobId)> = flow.jobs().map(|(name, job)| (name.to_owned(), job)).collect();
    assert_eq!(names.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["flow_part", "flow_part-2", "flow_report", "flow_part-3"]);
    db.run_while(worker(&db), db.until(names[2].1, JobState::Dead)).await;
    let row = sqlx::query("select output #>> '{}' as said from queue.done where id = $1").bind(names[1].1).fetch_one(&db.pool).await;
    assert_eq!(row.unwrap().get::<String, _>("said"), "b(a())");
    assert_eq!(db.state(names[3].1).await, Some(JobState::Parked));
    db.finish().await;
}

/// The graph stays complete while at least one job of the flow exists.
#[tokio::test]
async fn the_rows_of_a_flow_are_deleted_with_its_last_job() {
    let db = db().await;
    let mut flow = Flow::new("old");
    let first = flow.add("first", give("first", []));
    let second = flow.add("second", give("second", [])).after(&first).with(|job| job.queue("nobody"));
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let (first, second) = (flow.job(&first).id(), flow.job(&second).id());
    settle(&db, &[(first, JobState::Completed)]).await;
    let forget = async |job: JobId| {
        db.run(&format!(
            "delete from queue.done where id = {job}; delete from queue.ready where id = {job}; delete from queue.job where id = {job}"
        ))
        .await;
        sqlx::query(include_str!("../../../queue-worker/sql/prune_nodes.sql")).bind(0_i64).bind(100).execute(&db.pool).await.unwrap();
    };
    eventually("the second is ready", async || {
        db.run("select queue.consume_end_hints(0, 100); select queue.release_nodes(0, 100)").await;
        db.state(second).await == Some(JobState::Ready)
    })
    .await;
    forget(first).await;
    assert_eq!(states(&db, &flow).await, ["first completed", "second ready"]);
    forget(second).await;
    assert_eq!(db.count("select count(*) from queue.node").await, 0);
    db.finish().await;
}
