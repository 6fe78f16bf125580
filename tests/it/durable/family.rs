//! A parent job and its leaves, which the parent spawns one by one or as a map.

mod cases;

use std::time::Duration;

use queue_core::{
    Context, Handler, JobHandle, JobId, JobResult, Queue,
    durable::{Child, Durable},
    job, operate,
    wait::WaitError,
};
use serde::{Deserialize, Serialize};
use tests::TestDb;

/// Leaf job that performs its act and returns its number.
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
    /// Runs until cancelled.
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

/// Parent job that spawns or maps its leaves, joins them, and returns the outcome of each.
#[job(name = "parent", durable, max_attempts = 3, backoff = fixed("1ms"), output = FamilyReport)]
#[derive(Clone, Default, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is set by the test that needs it")]
pub(crate) struct Parent {
    pub(crate) by_map: bool,
    /// Acts of the first leaves. `count` further leaves follow and complete.
    pub(crate) acts: Vec<Act>,
    pub(crate) count: u32,
    pub(crate) in_queue: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) fair: Option<String>,
    pub(crate) unique: Option<String>,
    pub(crate) expired: bool,
    /// Whether the first attempt fails between the spawns and the joins.
    pub(crate) fail_between: bool,
    /// Signal that the parent waits for before it joins its leaves.
    pub(crate) signal: Option<String>,
    /// Whether a leaf that does not complete fails the parent.
    pub(crate) strict: bool,
    pub(crate) in_flight: Option<u32>,
    pub(crate) at: bool,
    /// Number of the leaf at which the iterator of leaves panics on the first attempt.
    pub(crate) panics_at: Option<u32>,
    /// Number of leaves that the second and later attempts omit.
    pub(crate) fewer: u32,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FamilyReport {
    /// Counts of all, completed, dead and cancelled leaves.
    pub(crate) counts: [u64; 4],
    pub(crate) first: Vec<String>,
    pub(crate) sum: u64,
}

impl FamilyReport {
    fn add(&mut self, end: Result<u32, WaitError>) {
        self.sum += end.as_ref().map_or(0, |number| u64::from(*number));
        if self.first.len() < 10 {
            self.first.push(describe_end(end));
        }
    }
}

pub(super) fn describe_end(end: Result<u32, WaitError>) -> String {
    match end {
        Ok(number) => number.to_string(),
        Err(WaitError::Dead { error, attempts, .. }) => format!("dead after {attempts}: {error}"),
        Err(WaitError::Cancelled { .. }) => "cancelled".to_owned(),
        Err(WaitError::Expired { .. }) => "expired".to_owned(),
        Err(error) => error.to_string(),
    }
}

impl Parent {
    fn leaves(&self, first: bool) -> impl Iterator<Item = Leaf> + use<> {
        let count = if first { self.count } else { self.count - self.fewer };
        let acts = self.acts.clone().into_iter().chain(std::iter::repeat_n(Act::Complete, count as usize));
        let panics_at = self.panics_at.filter(|_| first);
        acts.zip(0..).map(move |(act, number)| {
            assert_ne!(Some(number), panics_at, "as told");
            Leaf { number, act }
        })
    }

    async fn map(self, cx: &Durable, leaves: impl Iterator<Item = Leaf> + Send) -> JobResult<FamilyReport> {
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
        if let Some(key) = self.fair {
            map = map.fair(key);
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
        let (mut report, mut outputs, mut places) = (FamilyReport::default(), ended.outputs(), 0..);
        while let Some(page) = outputs.next_page().await? {
            for (place, output) in page {
                assert_eq!(Some(place), places.next());
                report.add(output);
            }
        }
        assert_eq!(places.next(), Some(total));
        report.counts = [ended.total, ended.completed, ended.dead, ended.cancelled];
        Ok(report)
    }

    async fn spawn(self, cx: &Durable, leaves: impl Iterator<Item = Leaf>) -> JobResult<FamilyReport> {
        let mut children = Vec::new();
        for (n, leaf) in leaves.enumerate() {
            let mut spawn = cx.spawn(("leaf", n), leaf);
            if let Some(queue) = &self.in_queue {
                spawn = spawn.queue(queue.clone()).meta("tenant", "t");
            }
            if let Some(key) = &self.key {
                spawn = spawn.key(key.clone());
            }
            if let Some(key) = &self.fair {
                spawn = spawn.fair(key.clone());
            }
            if let Some(key) = &self.unique {
                spawn = spawn.unique(key.clone());
            }
            if self.expired {
                spawn = spawn.expires_in(Duration::from_millis(1));
            }
            children.push(spawn.await?);
        }
        if self.fail_between && cx.attempt() == 1 {
            return Err("as told".into());
        }
        if let Some(name) = &self.signal {
            let _: String = cx.receive(name.as_str()).await;
        }
        let mut report = FamilyReport::default();
        if self.strict {
            let joined = futures_util::future::try_join_all(children.into_iter().map(Child::join)).await?;
            for number in joined {
                report.add(Ok(number));
            }
            return Ok(report);
        }
        for end in futures_util::future::try_join_all(children.into_iter().map(Child::outcome)).await? {
            let place = match &end {
                Ok(_) => 1,
                Err(WaitError::Dead { .. }) => 2,
                Err(_) => 3,
            };
            report.counts[0] += 1;
            report.counts[place] += 1;
            report.add(end);
        }
        Ok(report)
    }
}

impl Handler for Parent {
    async fn run(self, cx: &Durable) -> JobResult<FamilyReport> {
        super::effect(cx, "parent").await?;
        let leaves = self.leaves(cx.attempt() == 1);
        if self.by_map { self.map(cx, leaves).await } else { self.spawn(cx, leaves).await }
    }
}

pub(crate) fn parents(db: &TestDb) -> queue_worker::Worker {
    db.worker().register::<Parent>().queue("default", 4)
}

pub(crate) fn leaves(db: &TestDb, queue: &str) -> queue_worker::Worker {
    db.worker().register::<Leaf>().queue(queue, 4)
}

pub(super) async fn given(db: &TestDb, parent: &JobHandle<Parent>) -> FamilyReport {
    parent.wait(&db.queue()).timeout(Duration::from_mins(2)).await.unwrap()
}

pub(super) async fn gather(db: &TestDb, parent: JobId) -> operate::JobGather {
    Queue::new(&db.pool).job(parent).gathers().await.unwrap().remove(0)
}

/// Returns all leaves, ordered by id.
pub(super) async fn family(db: &TestDb) -> Vec<JobHandle<Leaf>> {
    db.all("select id from queue.jobs where job_type = 'child' order by id").await.into_iter().map(JobHandle::from_id).collect()
}

/// Waits until all leaf jobs of the maps have finished and have been counted.
pub(super) async fn all_is_counted(db: &TestDb) {
    let left = "select (select count(*) from queue.gather_part) + (select count(*) from queue.gather_hint) + (select count(*) from queue.gather where need > 0)";
    db.until_count(left, 0).await;
}
