//! Tests flows. A node runs with the outputs of its predecessors once all predecessors have finished. Also tests nodes whose predecessors
//! are dead, and that no node stays parked after its last predecessor has finished.

mod bounds;
mod ends;
mod faults;
mod many;
mod races;
mod statements;

use std::time::Duration;

use queue_core::{
    Context, Handler, JobId, JobResult, JobState, Queue,
    flow::{Flow, FlowHandle, IfDead, Node, NodeOutput},
    job, operate, testing,
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tests::{Sql as _, TestDb, complete, within};

/// Node job that returns its name and its inputs, or performs its act.
#[job(name = "flow_part", max_attempts = 1, output = String)]
#[derive(Serialize, Deserialize)]
pub(crate) struct Part {
    text: String,
    act: Act,
    from: Vec<NodeOutput<String>>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Act {
    Give,
    /// Fails until the table `mended` has a row.
    Fail,
    /// Returns an output of this number of bytes.
    Large(usize),
    /// Runs until cancelled.
    Hang,
}

async fn act(Part { text, act, from }: Part, cx: &Context) -> JobResult<String> {
    sqlx::query("insert into ran (job) values ($1)").bind(cx.id()).execute(cx.pool()).await?;
    match act {
        Act::Give => {}
        Act::Fail => {
            if sqlx::query("select from mended").fetch_optional(cx.pool()).await?.is_none() {
                return Err("as told".into());
            }
        }
        Act::Large(bytes) => return Ok("x".repeat(bytes)),
        Act::Hang => {
            cx.cancelled().cancelled().await;
            return Err("cancelled".into());
        }
    }
    let given = from.iter().map(|of| of.get().cloned().unwrap_or_else(|| of.ended().unwrap_or("?").to_owned()));
    Ok(format!("{text}({})", given.collect::<Vec<_>>().join(" ")))
}

impl Handler for Part {
    async fn run(self, cx: &Context) -> JobResult<String> {
        act(self, cx).await
    }
}

/// Node job like [`Part`] that runs in one transaction.
#[job(name = "flow_part_tx", transactional, max_attempts = 1, output = String)]
#[derive(Serialize, Deserialize)]
pub(super) struct PartTx(Part);

impl Handler for PartTx {
    async fn run(self, cx: &Context) -> JobResult<String> {
        act(self.0, cx).await
    }
}

/// Node job that completes itself in its own transaction. Outside of a flow, a job of this type would be deleted when it completes.
#[job(name = "flow_part_own", retain = "none", max_attempts = 1, output = String)]
#[derive(Serialize, Deserialize)]
pub(super) struct PartOwn(Part);

impl Handler for PartOwn {
    async fn run(self, cx: &Context) -> JobResult<String> {
        let output = act(self.0, cx).await?;
        cx.begin().await?.complete(&output).await?;
        Ok(output)
    }
}

pub(crate) fn part(text: &str, act: Act, from: impl IntoIterator<Item = NodeOutput<String>>) -> Part {
    Part { text: text.to_owned(), act, from: from.into_iter().collect() }
}

pub(crate) fn give(text: &str, from: impl IntoIterator<Item = NodeOutput<String>>) -> Part {
    part(text, Act::Give, from)
}

pub(crate) async fn db() -> TestDb {
    let db = TestDb::new().await;
    db.run("create table ran (job bigint); create table mended ()").await;
    db
}

pub(super) fn worker(db: &TestDb) -> queue_worker::Worker {
    db.worker().register::<Part>().register::<PartTx>().register::<PartOwn>().queue("default", 8)
}

/// Returns the name and state of each node of a flow.
pub(super) async fn states(db: &TestDb, flow: &FlowHandle) -> Vec<String> {
    let nodes = Queue::new(&db.pool).job(flow.id()).flow().await.unwrap();
    nodes.into_iter().map(|node| format!("{} {}", node.name, node.state.as_deref().unwrap_or("gone"))).collect()
}

pub(super) async fn output<J>(db: &TestDb, flow: &FlowHandle, node: &Node<J>) -> String {
    let statement = sqlx::query_scalar("select output #>> '{}' from queue.done where id = $1").bind(flow.job(node).id());
    statement.fetch_one(&db.pool).await.unwrap()
}

/// Completes a job with `output`, as the worker's settle statement does, and reports its end.
pub(super) async fn end(on: &mut PgConnection, job: JobId, output: &str) {
    complete(on, job, output).await;
    on.run(&format!("select queue.add_end_hints(array[{job}]); select queue.consume_end_hints(0, 1000)")).await;
}

/// Runs a worker until each job has the expected state.
pub(crate) async fn settle(db: &TestDb, expected: &[(JobId, JobState)]) {
    db.run_while(worker(db), async {
        for (job, state) in expected {
            within(Duration::from_mins(1), "it has finished", async || db.state(*job).await == Some(*state)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_diamond_runs_in_order_and_each_node_gets_the_outputs_of_its_inputs() {
    let db = db().await;
    let mut flow = Flow::new("diamond");
    let top = flow.add("top", give("top", []));
    let left = flow.add("left", PartTx(give("left", [top.output()])));
    let right = flow.add("right", PartOwn(give("right", [top.output()]))).with(|job| job.priority(150));
    let both = flow.add("both", give("both", [left.output(), right.output(), top.output()]));
    let last = flow.add("last", give("last", [])).after(&both).after(&top);
    let mut tx = db.pool.begin().await.unwrap();
    let flow = flow.enqueue(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(states(&db, &flow).await, ["top ready", "left parked", "right parked", "both parked", "last parked"]);
    assert_eq!(flow.jobs().map(|(name, _)| name).collect::<Vec<_>>(), ["top", "left", "right", "both", "last"]);
    settle(&db, &[(flow.job(&last).id(), JobState::Completed)]).await;
    assert_eq!(output(&db, &flow, &both).await, "both(left(top()) right(top()) top())");
    assert_eq!(db.count("select count(*) from ran").await, 5, "each ran once");
    assert_eq!(db.count("select (select count(*) from queue.edge) + (select count(*) from queue.node_hint)").await, 0);
    let nodes = Queue::new(&db.pool).job(flow.job(&both).id()).flow().await.unwrap();
    assert_eq!((nodes.len(), &*nodes[3].after, nodes[3].waits.len()), (5, &["top".to_owned(), "left".into(), "right".into()][..], 0));
    db.finish().await;
}

#[tokio::test]
async fn a_dead_letter_holds_what_is_after_it_until_it_completes() {
    let db = db().await;
    let mut flow = Flow::new("hold");
    let bad = flow.add("bad", part("bad", Act::Fail, []));
    let next = flow.add("next", give("next", [bad.output()]));
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let (bad, after) = (flow.job(&bad), flow.job(&next));
    db.run_while(worker(&db), async {
        db.until(bad.id(), JobState::Dead).await;
        db.until_count("select count(*) from queue.node_hint", 0).await;
    })
    .await;
    assert_eq!(states(&db, &flow).await, ["bad dead", "next parked"]);
    let why = Queue::new(&db.pool).job(after.id()).why().await.unwrap();
    let cause = why.causes.iter().find(|cause| cause.kind == operate::CauseKind::Parked).unwrap();
    assert!(cause.message.contains("waits for the node `bad`") && cause.message.contains("is dead"), "{}", cause.message);
    assert_eq!(cause.fix.as_deref(), Some(&*format!("queue-worker requeue {}", bad.id())));
    db.run("insert into mended default values").await;
    bad.requeue(&db.pool).await.unwrap();
    settle(&db, &[(after.id(), JobState::Completed)]).await;
    assert_eq!(output(&db, &flow, &next).await, "next(bad())");
    db.finish().await;
}

#[tokio::test]
async fn the_dying_node_decides_the_outcome_of_the_others() {
    let db = db().await;
    let mut flow = Flow::new("policies");
    let stops = flow.add("stops", part("stops", Act::Fail, [])).if_dead(IfDead::Cancel);
    let stopped = flow.add("stopped", give("stopped", [stops.output()]));
    let below = flow.add("below", give("below", [])).after(&stopped);
    let mourner = flow.add("mourner", give("mourner", [])).on_dead(&stops);
    let mended = flow.add("mended", give("mended", [])).after(&mourner);
    let goes_on = flow.add("goes_on", part("goes_on", Act::Fail, [])).if_dead(IfDead::Continue);
    let without = flow.add("without", give("without", [goes_on.output()]));
    let fine = flow.add("fine", give("fine", []));
    let unneeded = flow.add("unneeded", give("unneeded", [])).on_dead(&fine);
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let ends = [
        (flow.job(&below).id(), JobState::Cancelled),
        (flow.job(&mended).id(), JobState::Completed),
        (flow.job(&without).id(), JobState::Completed),
        (flow.job(&unneeded).id(), JobState::Cancelled),
    ];
    settle(&db, &ends).await;
    let expected = [
        "stops dead",
        "stopped cancelled",
        "below cancelled",
        "mourner completed",
        "mended completed",
        "goes_on dead",
        "without completed",
        "fine completed",
        "unneeded cancelled",
    ];
    assert_eq!(states(&db, &flow).await, expected);
    assert_eq!(output(&db, &flow, &without).await, "without(dead)");
    assert_eq!(db.count("select count(*) from ran").await, 6, "what is cancelled did not run");
    db.finish().await;
}

#[tokio::test]
async fn a_test_sets_the_inputs_of_the_handler() {
    let db = db().await;
    let ran = testing::run(give("alone", [NodeOutput::given("a".to_owned()), NodeOutput::ended_as("dead")])).pool(&db.pool).await;
    assert_eq!(ran.output(), "alone(a dead)");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn thousands_of_nodes_are_one_transaction_and_a_rollback_leaves_nothing() {
    let db = db().await;
    let many = || {
        let mut flow = Flow::new("many");
        let root = flow.add("root", give("root", []));
        let middle: Vec<_> = (0..2000).map(|n| flow.add(format!("n{n}"), give("n", [])).after(&root)).collect();
        let last = middle.iter().fold(flow.add("last", give("last", [])), Node::after);
        (flow, last)
    };
    let mut tx = db.pool.begin().await.unwrap();
    many().0.enqueue(&mut tx).await.unwrap();
    tx.rollback().await.unwrap();
    let left = "select (select count(*) from queue.job) + (select count(*) from queue.node) + (select count(*) from queue.edge)
        + (select count(*) from queue.parked) + (select count(*) from queue.ready)";
    assert_eq!(db.count(left).await, 0);
    let (flow, last) = many();
    let flow = flow.enqueue(&db.pool).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.parked").await, 2001);
    settle(&db, &[(flow.job(&last).id(), JobState::Completed)]).await;
    assert_eq!(db.count("select count(*) from ran").await, 2002);
    db.finish().await;
}
