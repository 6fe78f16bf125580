//! Maps: each job is spawned once, whatever ends the parent's attempts; each counts once, whoever ends it; and the parent is woken once all are over.

mod inline;
mod races;
mod statements;
mod whole;
mod window;

use std::time::Duration;

use queue_core::{Durable, Handler, Job as _, JobHandle, JobId, JobResult, JobState, Store, WaitError, job, operate};
use serde::{Deserialize, Serialize};
use tests::TestDb;

use super::{
    children::{Act, Leaf, run},
    db,
};

/// Maps its leaves, joins them, and says what each came to.
#[job(name = "mapper", durable, max_attempts = 3, backoff = fixed("1ms"), output = Said)]
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Mapper {
    /// So many that complete, and before them these.
    pub(crate) count: u32,
    pub(crate) acts: Vec<Act>,
    pub(crate) in_queue: Option<String>,
    pub(crate) in_flight: Option<u32>,
    pub(crate) expired: bool,
    pub(crate) key: Option<String>,
    pub(crate) unique: Option<String>,
    pub(crate) at: bool,
    /// In the first attempt the iterator panics at this place.
    pub(crate) panics_at: Option<u32>,
    /// So many fewer in later attempts.
    pub(crate) fewer: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Said {
    /// All, completed, dead and cancelled.
    pub(crate) counts: [u64; 4],
    pub(crate) first: Vec<String>,
    pub(crate) sum: u64,
}

impl Handler for Mapper {
    async fn run(self, cx: &Durable) -> JobResult<Said> {
        sqlx::query("insert into done_by (job, what, attempt) values ($1, 'mapper', $2)")
            .bind(cx.id())
            .bind(i64::from(cx.attempt()))
            .execute(cx.pool())
            .await?;
        let first = cx.attempt() == 1;
        let count = if first { self.count } else { self.count - self.fewer };
        let acts = self.acts.clone().into_iter().chain(std::iter::repeat_n(Act::Complete, count as usize));
        let panics_at = self.panics_at.filter(|_| first);
        let leaves = acts.zip(0..).map(move |(act, number)| {
            assert_ne!(Some(number), panics_at, "as told");
            Leaf { number, act }
        });
        let mut map = cx.map("leaf", leaves);
        if let Some(queue) = self.in_queue {
            map = map.queue(queue).meta("tenant", "t");
        }
        if let Some(most) = self.in_flight {
            map = map.in_flight(most);
        }
        if let Some(key) = self.key {
            map = map.key(key);
        }
        if let Some(key) = self.unique {
            map = map.unique(key);
        }
        if self.at {
            map = map.after(Duration::from_hours(1));
        }
        if self.expired {
            map = map.expires_in(Duration::from_millis(1));
        }
        let parts = map.await?;
        let total = parts.total();
        let ended = parts.join().await?;
        assert_eq!(total, ended.total);
        let (mut outputs, mut said, mut sum, mut places) = (ended.outputs(), Vec::new(), 0, 0..);
        while let Some(page) = outputs.next_page().await? {
            for (place, output) in page {
                assert_eq!(Some(place), places.next());
                sum += output.as_ref().map_or(0, |number| u64::from(*number));
                if said.len() < 10 {
                    said.push(say(output));
                }
            }
        }
        assert_eq!(places.next(), Some(total));
        Ok(Said { counts: [ended.total, ended.completed, ended.dead, ended.cancelled], first: said, sum })
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

pub(super) async fn given(db: &TestDb, parent: &JobHandle<Mapper>) -> Said {
    parent.wait(&db.pool).timeout(Duration::from_mins(2)).await.unwrap()
}

pub(super) async fn gather(db: &TestDb, parent: JobId) -> operate::JobGather {
    operate::gathers(&db.pool, Store::default(), parent).await.unwrap().remove(0)
}

/// The parts of all maps that are in this queue, in their order.
pub(super) async fn parts(db: &TestDb) -> Vec<JobId> {
    sqlx::query_scalar("select id from queue.gather_part order by parent, nr").fetch_all(&db.pool).await.unwrap()
}

pub(crate) fn parents(db: &TestDb) -> queue_worker::Worker {
    db.worker().register::<Mapper>().queue("default", 4)
}

pub(crate) fn leaves(db: &TestDb, queue: &str) -> queue_worker::Worker {
    db.worker().register::<Leaf>().queue(queue, 4)
}

/// That nothing is left to be counted.
pub(super) async fn all_is_counted(db: &TestDb) {
    let left = "select (select count(*) from queue.gather_part) + (select count(*) from queue.gather_hint) + (select count(*) from queue.gather where need > 0)";
    tests::eventually("all is counted", async || db.count(left).await == 0).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_parent_holds_nothing_until_all_are_over_and_reads_them_in_their_order() {
    let db = db().await;
    let mapper =
        Mapper { acts: vec![Act::Complete, Act::Fail, Act::Hang], count: 1200, in_queue: Some("leaves".into()), ..Mapper::default() };
    let parent = mapper.enqueue(&db.pool).await.unwrap();
    db.run_while(
        parents(&db),
        Box::pin(async {
            db.until(parent.id(), JobState::Parked).await;
            assert_eq!(db.count("select count(*) from queue.lease").await, 0);
            assert_eq!(db.count("select count(*) from queue.parked where names = '{leaf (join)}' and run_at is null").await, 1);
            let metas =
                format!("select count(*) from queue.job where meta = '{{\"tenant\": \"t\", \"part_of\": \"{}/leaf\"}}'", parent.id());
            assert_eq!(db.count(&metas).await, 1203);
            let hanging = parts(&db).await[2];
            let why = format!("select count(*) from queue.why({}) w where w::text like '%0 of 1203 of%leaf%are over%'", parent.id());
            assert_eq!(db.count(&why).await, 1);
            let says: String = sqlx::query_scalar("select says from queue.why($1)").bind(parent.id()).fetch_one(&db.pool).await.unwrap();
            assert_eq!(says, "it waits for the jobs of its map \"leaf\"");
            db.run_while(leaves(&db, "leaves"), async {
                db.until(hanging, JobState::Running).await;
                JobHandle::<Leaf>::from_id(hanging).cancel(&db.pool).await.unwrap();
                let said = given(&db, &parent).await;
                assert_eq!(said.counts, [1203, 1201, 1, 1]);
                assert_eq!(said.first[..5], ["0", "dead after 2: as told", "cancelled", "3", "4"]);
                assert_eq!(said.sum, (3..1203).sum::<u64>());
            })
            .await;
        }),
    )
    .await;
    let gather = gather(&db, parent.id()).await;
    assert_eq!((gather.total, gather.need, gather.completed, gather.dead, gather.cancelled), (Some(1203), 0, 1201, 1, 1));
    let ran = format!("select count(*) from done_by where what = 'mapper' and job = {}", parent.id());
    assert_eq!(db.count(&ran).await, 2, "it was woken once");
    all_is_counted(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn what_expires_is_over_and_an_empty_map_is_at_once() {
    let db = db().await;
    let late = Mapper { count: 3, in_queue: Some("nobody".into()), expired: true, ..Mapper::default() }.enqueue(&db.pool).await.unwrap();
    let empty = Mapper::default().enqueue(&db.pool).await.unwrap();
    let keyed = Mapper { count: 3, key: Some("k".into()), ..Mapper::default() }.enqueue(&db.pool).await.unwrap();
    let worker = db.worker().register::<Mapper>().register::<Leaf>().queue("default", 4);
    db.run_while(worker, async {
        let said = given(&db, &late).await;
        assert_eq!((said.counts, said.first), ([3, 0, 0, 3], vec!["expired".to_owned(); 3]));
        assert_eq!(given(&db, &empty).await.counts, [0; 4]);
        assert_eq!(given(&db, &keyed).await.counts, [3, 3, 0, 0]);
    })
    .await;
    all_is_counted(&db).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn an_attempt_that_ends_between_chunks_goes_on_after_the_last() {
    let db = db().await;
    let broken = Mapper { count: 2500, panics_at: Some(1500), in_queue: Some("leaves".into()), ..Mapper::default() };
    let parent = broken.enqueue(&db.pool).await.unwrap();
    db.run_while(parents(&db), async {
        db.until(parent.id(), JobState::Parked).await;
        assert_eq!(db.count("select max(attempt) from done_by").await, 2);
        assert_eq!(db.count("select count(*) from queue.brood where chunk < 3").await, 3);
        let numbers = "select count(distinct payload ->> 'number') from queue.job where payload ? 'number'";
        let all = "select count(*) from queue.jobs where job_type = 'child'";
        assert_eq!((db.count(numbers).await, db.count(all).await), (2500, 2500));
        let out_of_order =
            "select count(*) from queue.gather_part p join queue.job j using (id) where p.nr <> (j.payload ->> 'number')::bigint";
        assert_eq!(db.count(out_of_order).await, 0);
        db.run_while(leaves(&db, "leaves"), async {
            assert_eq!(given(&db, &parent).await.counts, [2500, 2500, 0, 0]);
        })
        .await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn an_iterator_that_gives_fewer_than_were_spawned_ends_the_job() {
    let db = db().await;
    let broken = Mapper { count: 1500, panics_at: Some(1400), fewer: 600, in_queue: Some("nobody".into()), ..Mapper::default() };
    let parent = broken.enqueue(&db.pool).await.unwrap();
    db.run_while(parents(&db), db.until(parent.id(), JobState::Dead)).await;
    let error = format!("select count(*) from queue.dead where id = {} and error like '%has to be the same in each attempt%'", parent.id());
    assert_eq!(db.count(&error).await, 1);
    db.finish().await;
}

#[tokio::test]
async fn who_cancels_a_parent_cancels_its_parts() {
    let db = db().await;
    let mapper = Mapper { count: 30, in_queue: Some("nobody".into()), in_flight: Some(4), ..Mapper::default() };
    let parent = mapper.enqueue(&db.pool).await.unwrap();
    db.run_while(parents(&db), async {
        db.until(parent.id(), JobState::Parked).await;
        parent.cancel(&db.pool).await.unwrap();
        assert_eq!(db.count("select count(*) from queue.jobs where job_type = 'child' and state = 'cancelled'").await, 30);
        all_is_counted(&db).await;
    })
    .await;
    assert_eq!(gather(&db, parent.id()).await.cancelled, 30);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_dead_part_that_is_requeued_changes_nothing_of_what_was_told() {
    let db = db().await;
    let mapper = Mapper { acts: vec![Act::Fail], count: 3, in_queue: Some("leaves".into()), ..Mapper::default() };
    let parent = mapper.enqueue(&db.pool).await.unwrap();
    let requeued = Box::pin(async {
        db.until(parent.id(), JobState::Parked).await;
        let all = parts(&db).await;
        // The others wait: the one that is dead is requeued before they end.
        for other in &all[1..] {
            JobHandle::<Leaf>::from_id(*other).snooze(&db.pool, Duration::from_hours(1)).await.unwrap();
        }
        db.run_while(leaves(&db, "leaves"), async {
            db.until(all[0], JobState::Dead).await;
            run(&db, &format!("update queue.job set payload = '{{\"number\": 0, \"act\": \"Complete\"}}' where id = {}", all[0])).await;
            JobHandle::<Leaf>::from_id(all[0]).requeue(&db.pool).await.unwrap();
            db.until(all[0], JobState::Completed).await;
            tests::eventually("its first end is counted", async || gather(&db, parent.id()).await.need == 3).await;
            for other in &all[1..] {
                JobHandle::<Leaf>::from_id(*other).run_now(&db.pool).await.unwrap();
            }
            let said = given(&db, &parent).await;
            assert_eq!((said.counts, said.first), ([4, 3, 1, 0], ["0", "1", "2", "3"].map(str::to_owned).to_vec()));
        })
        .await;
    });
    db.run_while(parents(&db), requeued).await;
    all_is_counted(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn a_completed_parent_that_is_brought_back_maps_anew_and_what_is_gone_has_no_gathers() {
    let db = db().await;
    let mapper = Mapper { count: 3, in_queue: Some("leaves".into()), ..Mapper::default() };
    let parent = mapper.enqueue(&db.pool).await.unwrap();
    let worker = db.worker().register::<Mapper>().register::<Leaf>().queue("default", 4).queue("leaves", 4);
    db.run_while(worker, async {
        assert_eq!(given(&db, &parent).await.counts, [3, 3, 0, 0]);
        parent.requeue(&db.pool).await.unwrap();
        db.until(parent.id(), JobState::Completed).await;
        assert_eq!(db.count("select count(*) from queue.jobs where job_type = 'child'").await, 6);
        assert_eq!(given(&db, &parent).await.counts, [3, 3, 0, 0]);
    })
    .await;
    for gone in ["done", "job"] {
        run(&db, &format!("delete from queue.{gone} where id = {}", parent.id())).await;
    }
    run(&db, "select queue.prune_gathers(0, 1000)").await;
    assert_eq!(db.count("select (select count(*) from queue.gather) + (select count(*) from queue.brood)").await, 0);
    run(&db, &format!("delete from queue.step where id = {}", parent.id())).await;
    db.finish().await;
}

#[tokio::test]
async fn a_map_of_jobs_that_are_there_already_spawns_none() {
    let db = db().await;
    let mapper = Mapper { count: 2, unique: Some("k".into()), in_queue: Some("nobody".into()), ..Mapper::default() };
    let parent = mapper.enqueue(&db.pool).await.unwrap();
    db.run_while(parents(&db), db.until(parent.id(), JobState::Dead)).await;
    let error = format!("select count(*) from queue.dead where id = {} and error like '%holds the uniqueness key%'", parent.id());
    assert_eq!((db.count(&error).await, db.count("select count(*) from queue.jobs where job_type = 'child'").await), (1, 0));
    db.finish().await;
}
