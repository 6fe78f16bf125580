//! Tests `flow`, which draws the nodes of a flow and can cancel the whole flow.

use queue_core::{JobState, flow::Flow};
use tests::{Act, Do, TestDb};

use super::{failed, json, on, text};

#[tokio::test]
#[ignore = "deep"]
async fn a_flow_is_drawn_as_a_tree_and_as_a_graph_and_cancelled_whole() {
    let db = TestDb::new().await;
    let mut flow = Flow::new("drawn");
    let first = flow.add("first", Do { act: Act::Ok(String::new()) });
    let second = flow.add("second \"b\"", Do { act: Act::Ok(String::new()) }).after(&first);
    let sorry = flow.add("sorry", Do { act: Act::Ok(String::new()) }).on_dead(&first);
    let last = flow.add("last", Do { act: Act::Ok(String::new()) }).after(&first).after(&second);
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let id = |job: queue_core::JobId| job.to_string();
    let ids = [id(flow.job(&first).id()), id(flow.job(&second).id()), id(flow.job(&sorry).id()), id(flow.job(&last).id())];
    let tree = on(&db, &["flow", &ids[3]]);
    let expected = format!(
        "first  {}  ready\n  second \"b\"  {}  parked  waits for first\n    last  {}  parked  waits for first, second \"b\"\n  sorry  {}  parked  on the death of first  waits for first\n",
        ids[0], ids[1], ids[3], ids[2]
    );
    assert_eq!(text(&tree.stdout), expected, "{}", text(&tree.stderr));
    let graph = on(&db, &["flow", &ids[0], "--mermaid"]);
    let graph = text(&graph.stdout).to_owned();
    assert!(graph.starts_with("graph LR\n  n0[\"first: ready\"]\n  n1[\"second #quot;b#quot;: parked\"]\n  n0 --> n1\n"), "{graph}");
    assert!(graph.contains("  n0 -. dies .-> n2\n"), "{graph}");
    assert_eq!(json(&db, &["flow", &ids[0]])[1]["waits"][0], "first");
    assert_eq!(text(&on(&db, &["flow", &ids[1], "--cancel"]).stdout), "cancelled 4 jobs\n");
    assert_eq!(db.state(flow.job(&last).id()).await, Some(JobState::Cancelled));
    assert_eq!(db.count("select jobs from queue.audit where act = 'cancelled'").await, 4);
    let (code, message) = failed(&on(&db, &["flow", "7"]));
    assert!(code == Some(3) && message.contains("there is no job 7"), "{code:?}: {message}");
    db.finish().await;
}
