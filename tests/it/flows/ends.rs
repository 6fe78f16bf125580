//! Tests nodes that are cancelled or discarded, expire or crash, and nodes that end without a notification.

use std::time::Duration;

use queue_core::{
    JobState, Queue,
    flow::{Flow, IfDead},
};
use tests::{complete, eventually};

use super::{Act, db, give, output, part, settle, states, worker};

#[tokio::test]
async fn a_cancelled_node_cancels_its_dependents_and_a_flow_is_cancelled_as_a_whole() {
    let db = db().await;
    for whole in [false, true] {
        let mut flow = Flow::new("stopped");
        let done = flow.add("done", give("done", []));
        let runs = flow.add("runs", part("runs", Act::Hang, [])).after(&done);
        let next = flow.add("next", give("next", [])).after(&runs);
        let last = flow.add("last", give("last", [])).after(&next);
        let apart = flow.add("apart", give("apart", [])).with(|job| job.queue("nobody"));
        let flow = flow.enqueue(&db.pool).await.unwrap();
        let (runs, apart) = (flow.job(&runs), flow.job(&apart));
        db.run_while(worker(&db), async {
            db.until(runs.id(), JobState::Running).await;
            if whole {
                assert_eq!(Queue::new(&db.pool).job(runs.id()).cancel_flow().await.unwrap(), 4);
            } else {
                runs.cancel(&db.pool).await.unwrap();
            }
            db.until(flow.job(&last).id(), JobState::Cancelled).await;
            db.until(runs.id(), JobState::Cancelled).await;
        })
        .await;
        let apart_is = if whole { "apart cancelled" } else { "apart ready" };
        assert_eq!(states(&db, &flow).await, ["done completed", "runs cancelled", "next cancelled", "last cancelled", apart_is]);
        if !whole {
            apart.cancel(&db.pool).await.unwrap();
        }
    }
    db.finish().await;
}

#[tokio::test]
async fn expired_and_discarded_nodes_do_not_return_and_cancel_their_dependents() {
    let db = db().await;
    let mut flow = Flow::new("gone");
    let late = flow.add("late", give("late", [])).with(|job| job.queue("nobody").expires_in(Duration::from_millis(1)));
    let after_late = flow.add("after_late", give("after_late", [])).after(&late);
    let bad = flow.add("bad", part("bad", Act::Fail, []));
    let held = flow.add("held", give("held", [bad.output()]));
    let going = flow.add("going", part("going", Act::Fail, [])).if_dead(IfDead::Continue);
    let bold = flow.add("bold", give("bold", [going.output()])).after(&late).with(|job| job.queue("nobody"));
    let quick = flow.add("quick", give("quick", []));
    let stale = flow.add("stale", give("stale", [])).after(&quick).with(|job| job.queue("nobody").expires_in(Duration::from_millis(1)));
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let bad = flow.job(&bad);
    db.run_while(worker(&db), async {
        db.until(bad.id(), JobState::Dead).await;
        db.until(flow.job(&after_late).id(), JobState::Cancelled).await;
        db.until(flow.job(&bold).id(), JobState::Cancelled).await;
        db.until(flow.job(&stale).id(), JobState::Expired).await;
        assert_eq!(db.state(flow.job(&held).id()).await, Some(JobState::Parked));
        bad.discard(&db.pool).await.unwrap();
        db.until(flow.job(&held).id(), JobState::Cancelled).await;
    })
    .await;
    let ends = ["late expired", "after_late cancelled", "bad gone", "held cancelled", "going dead", "bold cancelled"];
    let expected = [&ends[..], &["quick completed", "stale expired"]].concat();
    assert_eq!(states(&db, &flow).await, expected);
    db.finish().await;
}

#[tokio::test]
async fn a_node_whose_process_died_too_often_is_reported() {
    let db = db().await;
    let mut flow = Flow::new("crash");
    let crashes = flow.add("crashes", give("crashes", []));
    let sorry = flow.add("sorry", give("sorry", [])).on_dead(&crashes);
    let flow = flow.enqueue(&db.pool).await.unwrap();
    db.crash(flow.job(&crashes).id()).await;
    settle(&db, &[(flow.job(&sorry).id(), JobState::Completed)]).await;
    assert_eq!(states(&db, &flow).await, ["crashes dead", "sorry completed"]);
    db.finish().await;
}

#[tokio::test]
async fn an_output_too_large_for_the_next_node_makes_a_dead_letter_and_stops_no_other() {
    let db = db().await;
    let mut flow = Flow::new("large");
    let large = flow.add("large", part("large", Act::Large(200_000), []));
    let twice = flow.add("twice", give("twice", [large.output(), large.output()]));
    let other = flow.add("other", give("other", [])).after(&large);
    let sorry = flow.add("sorry", give("sorry", [])).on_dead(&twice);
    let flow = flow.enqueue(&db.pool).await.unwrap();
    settle(&db, &[(flow.job(&other).id(), JobState::Completed), (flow.job(&sorry).id(), JobState::Completed)]).await;
    assert_eq!(states(&db, &flow).await, ["large completed", "twice dead", "other completed", "sorry completed"]);
    let error = flow.job(&twice).find(&db.pool).await.unwrap().error.unwrap();
    assert!(error.contains("the limit is"), "{error}");
    db.finish().await;
}

#[tokio::test]
async fn a_waiting_node_cannot_be_run_manually_and_a_flow_in_sql_is_like_any_other() {
    let db = db().await;
    let statement = r#"select queue.enqueue_flow('by hand', '[
        {"name": "a", "job_type": "flow_part", "payload": {"text": "a", "act": "Give", "from": []}, "if_dead": "cancel"},
        {"name": "b", "job_type": "flow_part", "payload": {"text": "b", "act": "Give", "from": [{"$of": "a"}]}, "options": {"priority": 7}},
        {"name": "c", "job_type": "flow_part", "payload": {"text": "c", "act": "Give", "from": []}, "after": ["b"]},
        {"name": "d", "job_type": "flow_part", "payload": {"text": "d", "act": "Give", "from": []}, "on_dead": ["a"]}]')"#;
    let id: queue_core::JobId = db.one(statement).await;
    let nodes = Queue::new(&db.pool).job(id).flow().await.unwrap();
    assert_eq!((nodes[1].waits.len(), &*nodes[3].on_dead), (1, &["a".to_owned()][..]));
    for waits in [nodes[1].id, nodes[3].id] {
        queue_core::JobRef::from_id(waits).run_now(&db.pool).await.unwrap_err();
    }
    settle(&db, &[(nodes[2].id, JobState::Completed), (nodes[3].id, JobState::Cancelled)]).await;
    assert_eq!(db.count("select count(*) from queue.done where output = '\"b(a())\"'").await, 1);
    assert_eq!(db.count("select count(*) from queue.node").await, 4);
    db.finish().await;
}

#[tokio::test]
async fn an_unreported_end_is_found_and_nodes_are_deleted_with_their_jobs() {
    let db = db().await;
    let mut flow = Flow::new("untold");
    let quiet = flow.add("quiet", give("quiet", []));
    let next = flow.add("next", give("next", [quiet.output()]));
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let id = flow.job(&quiet).id();
    complete(&mut db.pool.acquire().await.unwrap(), id, "'\"by hand\"'").await;
    let prune = "select coalesce(queue.prune_nodes(0, 1000), 0)";
    assert_eq!(db.count("select count(*) from queue.node_hint").await, 0);
    assert!(db.count(prune).await > 0);
    settle(&db, &[(flow.job(&next).id(), JobState::Completed)]).await;
    assert_eq!(output(&db, &flow, &next).await, "next(by hand)");
    db.run("delete from queue.job; delete from queue.done; delete from queue.done_many").await;
    // The pruning skips rows that a transaction of the stopping worker still has locked.
    eventually("they go", async || {
        db.count(prune).await;
        db.count("select count(*) from queue.node").await == 0
    })
    .await;
    db.finish().await;
}
