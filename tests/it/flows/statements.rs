//! Tests the SQL statements that report the ends of nodes.

use queue_core::{JobState, flow::Flow};

use super::{db, give};

#[tokio::test]
async fn only_a_finished_awaited_job_leaves_a_hint() {
    let db = db().await;
    let mut flow = Flow::new("hints");
    let (a, b) = (flow.add("a", give("a", [])), flow.add("b", give("b", [])));
    let next = flow.add("next", give("next", [])).after(&a);
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let (a, b, next) = (flow.job(&a).id(), flow.job(&b).id(), flow.job(&next).id());
    let hints = "select count(*) from queue.node_hint";
    let report = async || {
        db.run(&format!("select queue.add_end_hints(array[{a}, {b}, {next}])")).await;
        db.run("select queue.consume_end_hints(0, 1000)").await;
        db.count(hints).await
    };
    assert_eq!(report().await, 0, "none has finished");
    // A report about running jobs, for example from a zombie, leaves no hint.
    db.run(&format!("delete from queue.ready where id in ({a}, {b});
        insert into queue.lease (token, worker, ids, attempts, crashes) values (gen_random_uuid(), gen_random_uuid(), '{{{a}, {b}}}', '{{1, 1}}', '{{0, 0}}')")).await;
    assert_eq!(report().await, 0, "they run");
    db.run(&format!(
        "delete from queue.lease; insert into queue.done (id, finished_at, ran_ms, attempts) values ({a}, now(), 1, 1), ({b}, now(), 1, 1)"
    ))
    .await;
    assert_eq!((report().await, report().await), (1, 2), "only a is waited for; reported twice, it is checked twice");
    assert_eq!(db.count("select moved::bigint from queue.release_nodes(0, 1000)").await, 1);
    assert_eq!((report().await, db.state(next).await), (0, Some(JobState::Ready)));
    db.finish().await;
}
