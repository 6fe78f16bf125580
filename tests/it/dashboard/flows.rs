//! Tests flows on the dashboard and in its API: the graph on the page of each job, and the cancellation of a flow.

use queue_core::{JobState, Queue, flow::Flow};
use serde_json::json;

use super::Served;
use crate::flows::{Act, db, give, part, settle};

#[tokio::test]
async fn a_page_draws_the_flow_of_its_job_and_cancels_it() {
    let db = db().await;
    let mut flow = Flow::new("drawn");
    let first = flow.add("first", give("first", []));
    let name = "a name <b> that is longer than its box";
    let bad = flow.add(name, part("bad", Act::Fail, [first.output()]));
    let rows = flow.add_all("rows", (0..3).map(|_| give("row", []))).after(&bad);
    flow.add("sorry", give("sorry", [])).on_dead(&rows);
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let (first, bad, rows) = (flow.job(&first).id(), flow.job(&bad).id(), flow.job(&rows).id());
    settle(&db, &[(bad, JobState::Dead)]).await;
    let served = Served::new(&db).await;
    let path = format!("/api/v1/jobs/{rows}/flow");
    let nodes = served.client.get(&path).await.json();
    assert_eq!(
        nodes[2],
        json!({ "name": "rows", "id": rows.to_string(), "state": "parked", "after": [name], "on_dead": [], "waits": [name], "jobs": 3, "over": 0 })
    );
    let shown = served.client.get(&format!("/jobs/{bad}")).await.text().to_owned();
    for part in [
        "aria-label=\"4 nodes, 2 finished\"",
        &format!(
            "<a href=\"/jobs/{bad}\" aria-current=\"page\"><title>a name &#60;b&#62; that is longer than its box: dead</title><rect class=\"dead\""
        ),
        &format!("<a href=\"/jobs/{rows}\"><title>rows: parked, 0 of 3</title>"),
        "<path class=\"open\"",
        "<path class=\"over\"",
        "<path class=\"open death\"",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("<b> that"), "{shown}");
    let cancel = format!("/api/v1/jobs/{first}/flow/cancel");
    assert!(shown.contains("/flow/cancel\""), "{shown}");
    let answer = served.client.post(&cancel, &json!({})).await;
    assert_eq!((answer.status, answer.json()), (200, json!({ "text": "cancelled 2 jobs of the flow" })));
    assert_eq!(db.count("select count(*) from queue.jobs where state = 'cancelled'").await, 5, "the parts with their node");
    let shown = served.client.get(&format!("/jobs/{first}")).await.text().to_owned();
    assert!(shown.contains(" nodes, 4 finished") && !shown.contains("/flow/cancel\""), "nothing is left to be cancelled: {shown}");
    let noted = Queue::new(&db.pool).audit(None, 10).await.unwrap();
    assert_eq!((noted[0].act.as_str(), noted[0].what.clone()), ("cancelled", format!("flow {first}")));
    assert_eq!(served.client.post("/api/v1/jobs/7/flow/cancel", &json!({})).await.status, 404);
    assert_eq!(served.client.get("/api/v1/jobs/7/flow").await.json(), json!([]));
    drop(served);
    db.finish().await;
}
