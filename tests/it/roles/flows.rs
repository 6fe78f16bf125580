//! Tests a flow whose producer and worker have only the privileges of their roles.

use queue_core::{JobId, flow::Flow};
use tests::WorkerProcess;

use super::{
    RoledStore,
    work::{WORKER, ok, until},
};

#[tokio::test]
#[ignore = "deep"]
async fn a_producer_enqueues_a_flow_and_a_worker_completes_it() {
    let store = RoledStore::new().await;
    let web = store.pool("web");
    let worker = WorkerProcess::start_logged(WORKER, &store.url("runner"), &[]);
    let mut flow = Flow::new("roled");
    let first = flow.add("first", ok());
    let many = flow.add_all("many", (0..5).map(|_| ok())).in_flight(2).after(&first);
    let last = flow.add("last", ok()).after(&many);
    let flow = flow.enqueue(&web).await.unwrap();
    until(&store, flow.job(&last).id(), "completed").await;
    let nodes = r#"[{"name": "a", "job_type": "do", "payload": {"act": {"Ok": "a"}}},
        {"name": "b", "job_type": "do", "jobs": [{"act": {"Ok": "b"}}], "after": ["a"]}]"#;
    let id = sqlx::query_scalar("select queue.enqueue_flow('said', $1::text::jsonb)").bind(nodes).fetch_one(&web);
    let id: JobId = id.await.unwrap();
    let many: JobId =
        sqlx::query_scalar("select id from queue.nodes($1) where name = 'b'").bind(id).fetch_one(&store.db.pool).await.unwrap();
    until(&store, many, "completed").await;
    drop(worker);
    store.server.stop().unwrap();
}
