//! Tests child jobs. A parent spawns one child per step name, regardless of how its attempts end. The end of a child is reported to the
//! parent once, regardless of the outcome. A waiting parent holds no resources.

mod inline;
mod statements;

use queue_core::{Context, Handler, Job as _, JobHandle, JobResult, JobState, Queue, durable::Durable, job};
use serde::{Deserialize, Serialize};

use super::{
    db, db_by_hand,
    family::{Act, Leaf, Parent, describe_end, given, parents},
};

/// Child job that runs in one transaction.
#[job(name = "child_tx", transactional, max_attempts = 1, output = u32)]
#[derive(Serialize, Deserialize)]
struct LeafTx(u32);

impl Handler for LeafTx {
    async fn run(self, _: &Context) -> JobResult<u32> {
        if self.0 == 0 { Err("as told".into()) } else { Ok(self.0) }
    }
}

/// Child job that completes itself in its own transaction and keeps no record.
#[job(name = "child_own", retain = "none", output = u32)]
#[derive(Serialize, Deserialize)]
struct LeafOwn(u32);

impl Handler for LeafOwn {
    async fn run(self, cx: &Context) -> JobResult<u32> {
        let tx = cx.begin().await?;
        tx.complete(&self.0).await?;
        Ok(self.0)
    }
}

/// Parent job that spawns a [`LeafTx`] and a [`LeafOwn`], and returns the outcome of each.
#[job(name = "parent_of_kinds", durable, output = Vec<String>)]
#[derive(Serialize, Deserialize)]
struct OfKinds(u32);

impl Handler for OfKinds {
    async fn run(self, cx: &Durable) -> JobResult<Vec<String>> {
        let (tx, own) = (cx.spawn("tx", LeafTx(self.0)).await?, cx.spawn("own", LeafOwn(self.0)).await?);
        let (tx, own) = tokio::join!(tx.outcome(), own.outcome());
        Ok(vec![describe_end(tx?), describe_end(own?)])
    }
}

#[tokio::test]
async fn children_of_every_kind_notify_their_parent_even_without_a_record() {
    let db = db().await;
    let (one, none) = (OfKinds(7).enqueue(&db.pool).await.unwrap(), OfKinds(0).enqueue(&db.pool).await.unwrap());
    db.run_while(db.worker().register::<OfKinds>().register::<LeafTx>().register::<LeafOwn>(), async {
        assert_eq!(one.wait(&db.queue()).await.unwrap(), ["7", "7"]);
        assert_eq!(none.wait(&db.queue()).await.unwrap(), ["dead after 1: as told", "0"]);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_child_that_finished_before_the_join_is_read_immediately_and_a_pruned_one_was_reported() {
    let db = db().await;
    let parent = Parent { acts: vec![Act::Complete, Act::Fail], signal: Some("go".into()), ..Parent::default() };
    let parent = parent.enqueue(&db.pool).await.unwrap();
    db.run_while(parents(&db).register::<Leaf>(), async {
        db.until(parent.id(), JobState::Parked).await;
        db.until_count("select count(*) from queue.child where state is null", 0).await;
        let of = "in (select id from queue.child)";
        let gone = format!(
            "delete from queue.done where id {of}; delete from queue.dead where id {of}; delete from queue.failure where id {of};
             delete from queue.job where id {of}; delete from queue.done_many where ids <@ (select array_agg(id) from queue.child)"
        );
        db.run(&gone).await;
        let _ = parent.signal(&db.pool, "go", "now").await.unwrap();
        assert_eq!(given(&db, &parent).await.first, ["0", "dead after 2: as told"]);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_dead_child_ends_its_parent_and_both_start_again_once_requeued() {
    let db = db().await;
    let parent = Parent { acts: vec![Act::Fail], strict: true, ..Parent::default() }.enqueue(&db.pool).await.unwrap();
    db.run_while(parents(&db).register::<Leaf>(), async {
        db.until(parent.id(), JobState::Dead).await;
        let id = parent.id();
        let errors = format!("select count(*) from queue.failure where id = {id} and error like '%is dead after 2 attempts: as told'");
        assert_eq!(db.count(&errors).await, 1, "another attempt would get the same");
        let child = async || Queue::new(&db.pool).job(parent.id()).children().await.unwrap().remove(0);
        let first = child().await.id;
        // With a corrected payload, the child completes.
        db.run(&format!("update queue.job set payload = '{{\"number\": 5, \"act\": \"Complete\"}}' where id = {first}")).await;
        JobHandle::<Leaf>::from_id(first).requeue(&db.pool).await.unwrap();
        db.until(first, JobState::Completed).await;
        assert_eq!(child().await.state.as_deref(), Some("dead"), "it reports once");
        parent.requeue(&db.pool).await.unwrap();
        assert_eq!(given(&db, &parent).await.first, ["5"]);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_signal_may_not_have_the_name_of_a_childs_end_nor_may_a_step() {
    let db = db().await;
    let parent = Parent::default().enqueue(&db.pool).await.unwrap();
    let refused = parent.signal(&db.pool, "leaf/0 (join)", "now").await.unwrap_err().to_string();
    assert!(refused.contains("ends of children"), "{refused}");
    let named = queue_core::testing::run(super::plan([super::step("a (join)")])).await;
    assert!(named.is_dead(), "{:?}", named.error);
    db.finish().await;
}
