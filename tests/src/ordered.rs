//! Job type with an ordering key. The handler records the start and the end of each attempt, and [`violations`] checks the records.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use queue_core::{Context, Failure, Handler, JobId, JobResult, job, options::KeyPolicy};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

/// Job with an ordering key. Attempts fail at random, and the first attempt may turn the job into a dead letter.
#[job(key = self.key, max_attempts = 20, backoff = fixed("5ms"))]
#[derive(Debug, Serialize, Deserialize)]
pub struct Ordered {
    /// Ordering key of the job.
    pub key: u32,
    /// Maximum duration of an attempt in ms.
    pub ms: u64,
    /// Percentage of attempts that fail.
    pub fails: u64,
    /// Whether the job becomes a dead letter on its first attempt.
    pub dies: bool,
}

/// Statement that creates the table `run` for the handlers' records. Rows are numbered in the order in which they are written.
pub const RUNS: &str = "create table run (seq bigserial primary key, key int not null, job bigint not null, what text not null)";

impl Ordered {
    /// Returns the key policy of a key: `Skip` for every third key, and `Block` for all others.
    pub fn policy(key: u32) -> KeyPolicy {
        if key.is_multiple_of(3) { KeyPolicy::Skip } else { KeyPolicy::Block }
    }

    async fn note(&self, cx: &Context, what: &str) -> sqlx::Result<i64> {
        const NOTE: &str = "insert into run (key, job, what) values ($1, $2, $3) returning (select count(*) from run where job = $2)";
        sqlx::query_scalar(NOTE).bind(self.key.cast_signed()).bind(cx.id()).bind(what).fetch_one(cx.pool()).await
    }
}

impl Handler for Ordered {
    async fn run(self, cx: &Context) -> JobResult {
        let before = self.note(cx, "begin").await?;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=self.ms))).await;
        if self.dies && before == 0 {
            self.note(cx, "dead").await?;
            return Err(Failure::terminal("as told"));
        }
        if fastrand::u64(0..100) < self.fails {
            self.note(cx, "fail").await?;
            return Err(if fastrand::bool() { Failure::snooze(Duration::from_millis(3)) } else { "as told".into() });
        }
        self.note(cx, "done").await?;
        Ok(())
    }
}

/// Compares the handlers' records with the commit order of the jobs of each key. Returns the violations and the number of records.
///
/// # Errors
/// Returns a database error if a statement fails.
pub async fn violations(pool: &PgPool, committed: &BTreeMap<u32, Vec<JobId>>) -> sqlx::Result<(Vec<String>, usize)> {
    let runs: Vec<(i32, JobId, String)> = sqlx::query_as("select key, job, what from run order by seq").fetch_all(pool).await?;
    let mut wrong = Vec::new();
    let mut by_key: HashMap<u32, Vec<(JobId, &str)>> = HashMap::new();
    for (key, job, what) in &runs {
        by_key.entry(key.cast_unsigned()).or_default().push((*job, what));
    }
    for (key, jobs) in committed {
        let lines = by_key.remove(key).unwrap_or_default();
        wrong.extend(check(*key, jobs, &lines));
    }
    wrong.extend(by_key.keys().map(|key| format!("key {key}: jobs ran that no producer committed")));
    Ok((wrong, runs.len()))
}

/// Checks that all jobs of a key ran to their end in commit order and without overlap. Returns a description of each violation.
fn check(key: u32, jobs: &[JobId], lines: &[(JobId, &str)]) -> Vec<String> {
    let skips = Ordered::policy(key) == KeyPolicy::Skip;
    let ends = |what: &str| what == "done" || (what == "dead" && skips);
    let mut wrong = Vec::new();
    let (mut at, mut ended, mut last) = (0, false, "");
    for (number, (job, what)) in lines.iter().enumerate() {
        if jobs.get(at) != Some(job) && ended && jobs.get(at + 1) == Some(job) && *what == "begin" {
            (at, ended) = (at + 1, false);
        }
        if jobs.get(at) != Some(job) {
            wrong.push(format!("key {key}, line {number}: {what} of {job}, while {:?} is at {last:?}", jobs.get(at)));
        }
        ended |= ends(what);
        last = what;
    }
    let met: HashSet<JobId> = lines.iter().filter(|(_, what)| ends(what)).map(|(job, _)| *job).collect();
    wrong.extend(jobs.iter().filter(|job| !met.contains(job)).map(|job| format!("key {key}: {job} never came to its end")));
    wrong
}
