//! Children: a name has one, whatever ends its parent's attempts; its end is told once, whoever ends it; and a parent that waits holds nothing.

mod inline;
mod ordered;
mod races;
mod statements;

use std::time::Duration;

use queue_core::{Context, Durable, Handler, Job as _, JobHandle, JobId, JobResult, JobState, Store, WaitError, job, operate};
use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;
use tests::TestDb;

use super::db;

/// Does what it is told to, and gives its number.
#[job(name = "child", max_attempts = 2, backoff = fixed("1ms"), output = u32)]
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Leaf {
    pub(crate) number: u32,
    pub(crate) act: Act,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Act {
    Complete,
    Fail,
    /// Until it is cancelled.
    Hang,
}

impl Handler for Leaf {
    async fn run(self, cx: &Context) -> JobResult<u32> {
        sqlx::query("insert into done_by (job, what, attempt) values ($1, 'leaf', 0)").bind(cx.id()).execute(cx.pool()).await?;
        match self.act {
            Act::Complete => Ok(self.number),
            Act::Fail => Err("as told".into()),
            Act::Hang => {
                cx.cancelled().cancelled().await;
                Err("cancelled".into())
            }
        }
    }
}

/// The same in one transaction.
#[job(name = "child_tx", transactional, max_attempts = 1, output = u32)]
#[derive(Serialize, Deserialize)]
pub(crate) struct LeafTx(u32);

impl Handler for LeafTx {
    async fn run(self, _: &Context) -> JobResult<u32> {
        if self.0 == 0 { Err("as told".into()) } else { Ok(self.0) }
    }
}

/// Completes itself, and keeps no record.
#[job(name = "child_own", retain = "none", output = u32)]
#[derive(Serialize, Deserialize)]
pub(crate) struct LeafOwn(u32);

impl Handler for LeafOwn {
    async fn run(self, cx: &Context) -> JobResult<u32> {
        let tx = cx.begin().await?;
        tx.complete(&self.0).await?;
        Ok(self.0)
    }
}

/// Spawns its leaves, and joins all of them; in between it fails once.
#[job(name = "parent", durable, max_attempts = 3, backoff = fixed("1ms"), output = Vec<String>)]
#[derive(Serialize, Deserialize)]
pub(crate) struct Tree {
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) options: Options,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Options {
    /// The first attempt fails between the spawns and the joins.
    pub(crate) fail_between: bool,
    pub(crate) in_queue: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) unique: Option<String>,
    /// A transactional one, and one that completes itself, with these numbers.
    pub(crate) others: Option<u32>,
    /// Waits for this signal first.
    pub(crate) signal: Option<String>,
    /// What does not complete ends the parent.
    pub(crate) strict: bool,
    pub(crate) expired: bool,
}

impl Handler for Tree {
    async fn run(self, cx: &Durable) -> JobResult<Vec<String>> {
        let Self { leaves, options } = self;
        let mut children = Vec::new();
        for (n, leaf) in leaves.into_iter().enumerate() {
            let mut spawn = cx.spawn(("leaf", n), leaf);
            if let Some(queue) = &options.in_queue {
                spawn = spawn.queue(queue.clone()).meta("tenant", "t");
            }
            if let Some(key) = &options.key {
                spawn = spawn.key(key.clone());
            }
            if let Some(key) = &options.unique {
                spawn = spawn.unique(key.clone());
            }
            if options.expired {
                spawn = spawn.expires_in(Duration::from_millis(1));
            }
            children.push(spawn.await?);
        }
        if options.fail_between && cx.attempt() == 1 {
            return Err("as told".into());
        }
        if let Some(name) = &options.signal {
            let _: String = cx.receive(name.as_str()).await;
        }
        if options.strict {
            let joined = futures_util::future::try_join_all(children.into_iter().map(queue_core::Child::join)).await?;
            return Ok(joined.iter().map(u32::to_string).collect());
        }
        let ends = futures_util::future::try_join_all(children.into_iter().map(queue_core::Child::outcome)).await?;
        let mut said: Vec<String> = ends.into_iter().map(say).collect();
        if let Some(number) = options.others {
            let (tx, own) = (cx.spawn("tx", LeafTx(number)).await?, cx.spawn("own", LeafOwn(number)).await?);
            let (tx, own) = tokio::join!(tx.outcome(), own.outcome());
            said.extend([say(tx?), say(own?)]);
        }
        Ok(said)
    }
}

fn say(end: Result<u32, WaitError>) -> String {
    match end {
        Ok(number) => number.to_string(),
        Err(WaitError::Dead { error, attempts, .. }) => format!("dead after {attempts}: {error}"),
        Err(WaitError::Cancelled { .. }) => "cancelled".to_owned(),
        Err(WaitError::Expired { .. }) => "expired".to_owned(),
        Err(error) => error.to_string(),
    }
}

pub(crate) fn tree(acts: impl IntoIterator<Item = Act>, options: Options) -> Tree {
    let leaves = acts.into_iter().zip(1..).map(|(act, number)| Leaf { number, act }).collect();
    Tree { leaves, options }
}

pub(crate) fn worker(db: &TestDb) -> queue_worker::Worker {
    db.worker().register::<Tree>().register::<Leaf>().register::<LeafTx>().register::<LeafOwn>()
}

pub(crate) async fn children(db: &TestDb, parent: JobId) -> Vec<operate::JobChild> {
    operate::children(&db.pool, Store::default(), parent).await.unwrap()
}

pub(crate) async fn run(db: &TestDb, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&db.pool).await.unwrap();
}

async fn given(db: &TestDb, parent: &JobHandle<Tree>) -> Vec<String> {
    parent.wait(&db.pool).timeout(Duration::from_mins(1)).await.unwrap()
}

#[tokio::test]
async fn a_parent_holds_nothing_until_its_children_are_over_and_is_given_what_they_returned() {
    let db = db().await;
    let options = Options { fail_between: true, in_queue: Some("leaves".into()), ..Options::default() };
    let parent = tree([Act::Complete, Act::Complete, Act::Fail], options).enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker().register::<Tree>().queue("default", 4), async {
        db.until(parent.id(), JobState::Parked).await;
        let waits = "select count(*) from queue.parked where names = '{leaf/0 (join),leaf/1 (join),leaf/2 (join)}' and run_at is null";
        assert_eq!((db.count(waits).await, db.count("select count(*) from queue.lease").await), (1, 0));
        // The second attempt spawned no other.
        assert_eq!(db.count("select count(*) from queue.jobs where job_type = 'child' and queue = 'leaves'").await, 3);
        let metas = format!("select count(*) from queue.job where meta = '{{\"tenant\": \"t\", \"child_of\": \"{}\"}}'", parent.id());
        assert_eq!(db.count(&metas).await, 3);
        db.run_while(db.worker().register::<Leaf>().queue("leaves", 4), async {
            assert_eq!(given(&db, &parent).await, ["1", "2", "dead after 2: as told"]);
        })
        .await;
    })
    .await;
    let told: Vec<_> = children(&db, parent.id()).await.into_iter().map(|child| (child.name, child.state)).collect();
    let of = |name: &str, state: &str| (name.to_owned(), Some(state.to_owned()));
    assert_eq!(told, [of("leaf/0", "completed"), of("leaf/1", "completed"), of("leaf/2", "dead")]);
    assert_eq!(db.count("select count(*) from done_by").await, 4, "each ran once, but for the one that failed twice");
    db.finish().await;
}

#[tokio::test]
async fn children_of_every_kind_tell_their_parent_and_those_without_a_record_too() {
    let db = db().await;
    let options = Options { others: Some(7), key: Some("one after the other".into()), ..Options::default() };
    let parent = tree([Act::Complete, Act::Complete], options).enqueue(&db.pool).await.unwrap();
    let failing = tree([], Options { others: Some(0), ..Options::default() }).enqueue(&db.pool).await.unwrap();
    db.run_while(worker(&db), async {
        assert_eq!(given(&db, &parent).await, ["1", "2", "7", "7"]);
        assert_eq!(given(&db, &failing).await, ["dead after 1: as told", "0"]);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_child_that_was_over_before_is_there_at_once_and_one_that_is_pruned_has_told() {
    let db = db().await;
    let options = Options { signal: Some("go".into()), ..Options::default() };
    let parent = tree([Act::Complete, Act::Fail], options).enqueue(&db.pool).await.unwrap();
    db.run_while(worker(&db), async {
        db.until(parent.id(), JobState::Parked).await;
        tests::eventually("both have told", async || db.count("select count(*) from queue.child where state is null").await == 0).await;
        for child in children(&db, parent.id()).await {
            for table in ["done", "dead", "failure", "job"] {
                run(&db, &format!("delete from queue.{table} where id = {}", child.id)).await;
            }
        }
        run(&db, "delete from queue.done_many where ids <@ (select array_agg(id) from queue.child)").await;
        let _ = parent.signal(&db.pool, "go", "now").await.unwrap();
        assert_eq!(given(&db, &parent).await, ["1", "dead after 2: as told"]);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn what_is_cancelled_by_an_operator_or_expires_tells_too() {
    let db = db().await;
    let options = Options { in_queue: Some("nobody".into()), ..Options::default() };
    let parent = tree([Act::Complete, Act::Hang], options).enqueue(&db.pool).await.unwrap();
    let late = Options { in_queue: Some("nobody".into()), expired: true, ..Options::default() };
    let late = tree([Act::Complete], late).enqueue(&db.pool).await.unwrap();
    db.run_while(
        db.worker().register::<Tree>().queue("default", 4),
        Box::pin(async {
            db.until(parent.id(), JobState::Parked).await;
            let spawned = children(&db, parent.id()).await;
            JobHandle::<Leaf>::from_id(spawned[0].id).cancel(&db.pool).await.unwrap();
            db.run_while(db.worker().register::<Leaf>().queue("nobody", 4), async {
                db.until(spawned[1].id, JobState::Running).await;
                JobHandle::<Leaf>::from_id(spawned[1].id).cancel(&db.pool).await.unwrap();
                assert_eq!(given(&db, &parent).await, ["cancelled", "cancelled"]);
            })
            .await;
            assert_eq!(given(&db, &late).await, ["expired"]);
        }),
    )
    .await;
    db.finish().await;
}

#[tokio::test]
async fn who_cancels_a_parent_cancels_its_children_and_theirs() {
    let db = db().await;
    let parked = tree([Act::Hang, Act::Complete], Options { in_queue: Some("slow".into()), ..Options::default() });
    let parked = parked.enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker().register::<Tree>().queue("default", 4), async {
        db.until(parked.id(), JobState::Parked).await;
        parked.cancel(&db.pool).await.unwrap();
        for child in children(&db, parked.id()).await {
            assert_eq!(db.state(child.id).await, Some(JobState::Cancelled));
            assert_eq!(child.state.as_deref(), Some("cancelled"));
        }
    })
    .await;
    assert_eq!((db.state(parked.id()).await, db.count("select count(*) from done_by").await), (Some(JobState::Cancelled), 0));
    db.finish().await;
}

#[tokio::test]
async fn a_dead_child_ends_its_parent_and_counts_anew_once_both_are_requeued() {
    let db = db().await;
    let parent = tree([Act::Fail], Options { strict: true, ..Options::default() }).enqueue(&db.pool).await.unwrap();
    db.run_while(worker(&db), async {
        db.until(parent.id(), JobState::Dead).await;
        let errors =
            format!("select count(*) from queue.failure where id = {} and error like '%is dead after 2 attempts: as told'", parent.id());
        assert_eq!(db.count(&errors).await, 1, "another attempt would be told the same");
        let child = children(&db, parent.id()).await.remove(0).id;
        // Mended: it completes now.
        run(&db, &format!("update queue.job set payload = '{{\"number\": 5, \"act\": \"Complete\"}}' where id = {child}")).await;
        JobHandle::<Leaf>::from_id(child).requeue(&db.pool).await.unwrap();
        db.until(child, JobState::Completed).await;
        assert_eq!(children(&db, parent.id()).await[0].state.as_deref(), Some("dead"), "it tells once");
        parent.requeue(&db.pool).await.unwrap();
        assert_eq!(given(&db, &parent).await, ["5"]);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_unique_job_that_is_there_already_is_nobodys_child() {
    let db = db().await;
    let options = || Options { unique: Some("k".into()), in_queue: Some("nobody".into()), ..Options::default() };
    let first = tree([Act::Complete], options()).enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker().register::<Tree>().queue("default", 4), async {
        db.until(first.id(), JobState::Parked).await;
        let second = tree([Act::Complete], options()).enqueue(&db.pool).await.unwrap();
        db.until(second.id(), JobState::Dead).await;
        let error = format!("select count(*) from queue.dead where id = {} and error like '%holds its uniqueness key%'", second.id());
        assert_eq!((db.count(&error).await, children(&db, second.id()).await.len()), (1, 0));
    })
    .await;
    assert_eq!(db.count("select count(*) from queue.jobs where job_type = 'child'").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn a_completed_parent_that_is_brought_back_spawns_anew_and_what_is_gone_has_no_children() {
    let db = db().await;
    let parent = tree([Act::Complete], Options::default()).enqueue(&db.pool).await.unwrap();
    db.run_while(worker(&db), async {
        assert_eq!(given(&db, &parent).await, ["1"]);
        let first = children(&db, parent.id()).await[0].id;
        parent.requeue(&db.pool).await.unwrap();
        db.until(parent.id(), JobState::Completed).await;
        assert_ne!(children(&db, parent.id()).await[0].id, first);
    })
    .await;
    for gone in ["done", "job"] {
        run(&db, &format!("delete from queue.{gone} where id = {}", parent.id())).await;
    }
    run(&db, "select queue.prune_children(0, 1000)").await;
    assert_eq!(db.count("select count(*) from queue.child").await, 0);
    run(&db, &format!("delete from queue.step where id = {}", parent.id())).await;
    db.finish().await;
}

#[tokio::test]
async fn a_signal_is_not_called_as_the_end_of_a_child_nor_a_step() {
    let db = db().await;
    let parent = tree([], Options::default()).enqueue(&db.pool).await.unwrap();
    let refused = parent.signal(&db.pool, "leaf/0 (join)", "now").await.unwrap_err().to_string();
    assert!(refused.contains("ends of children"), "{refused}");
    let named = queue_core::testing::run(super::plan([super::step("a (join)")])).await;
    assert!(named.is_dead(), "{:?}", named.error);
    db.finish().await;
}
