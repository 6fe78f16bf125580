//! Tests invalid flows. The error names the node, and no job is enqueued.

use queue_core::{Error, Job as _, flow::Flow};

use super::{db, give};

#[tokio::test]
async fn an_impossible_flow_names_the_node_and_leaves_nothing() {
    let db = db().await;
    let mut other = Flow::new("other");
    let alien = other.add("alien", give("alien", []));
    let mut faults = Vec::new();
    for fault in 0..5 {
        let mut flow = Flow::new("faulty");
        let first = flow.add("first", give("first", []));
        let second = flow.add("second", give("second", [first.output()]));
        match fault {
            0 => drop(first.after(&second)),
            1 => drop(second.after(&alien)),
            2 => drop(flow.add("third", give("third", [alien.output()]))),
            3 => drop(flow.add("third", give("third", [])).with(|job| job.max_attempts(0))),
            _ => drop(flow.add("third", give("nul \0", []))),
        }
        let error = flow.enqueue(&db.pool).await.unwrap_err();
        let Error::Node { node, .. } = &error else { panic!("{error:?}") };
        faults.push(format!("{node}: {error}"));
    }
    assert_eq!(
        faults.iter().map(|fault| fault.split(':').next().unwrap()).collect::<Vec<_>>(),
        ["first", "second", "third", "third", "third"]
    );
    assert!(faults[0].contains("added later") && faults[1].contains("of another flow"), "{faults:?}");
    for (fault, expected) in [
        (0, "cannot have an ordering key"),
        (1, "cannot have an ordering key"),
        (2, "appears twice"),
        (3, "at least one node"),
        (4, "uniqueness key"),
    ] {
        let mut flow = Flow::new("faulty");
        if fault != 3 {
            let first = flow.add("first", give("first", [])).with(|job| job.unique("k"));
            let name = if fault == 2 { "first" } else { "second" };
            let second = flow.add(name, give("second", [first.output()]));
            drop(second.with(|job| match fault {
                0 => job.key("k"),
                1 => job.after(std::time::Duration::from_hours(1)),
                4 => job.unique("k"),
                _ => job,
            }));
        }
        let error = flow.enqueue(&db.pool).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{fault}: {error}");
    }
    assert_eq!(db.count("select (select count(*) from queue.job) + (select count(*) from queue.node)").await, 0);
    // The output of a node has no meaning outside of its flow.
    let error = give("alone", [alien.output()]).enqueue(&db.pool).await.unwrap_err();
    assert!(matches!(error, Error::Payload { .. }), "{error}");
    db.finish().await;
}
