//! Workloads L1 to L4, which drain jobs under limits that are never reached, or jobs in fair queues. Each case is compared with an
//! unlimited queue in the same run, at several batch sizes.

use std::time::Duration;

use queue_core::{Batch, Queue, options::Limit};

use crate::{
    BenchError, FigureSink, Plan,
    database::BenchDatabase,
    drain::{fill_and_drain, fill_by_and_drain},
    job::Noop,
    process::Shape,
    report::Record,
};

/// Number of different keys, if the jobs have keys.
const KEYS: u64 = 10_000;

/// Maximum numbers of jobs per claim.
const BATCHES: [usize; 3] = [20, 100, 500];

/// Queue to drain, with its limit.
struct LimitedQueue {
    name: &'static str,
    /// Whether each job has one of the [`KEYS`] keys.
    keyed: bool,
    limit: Option<Limit>,
}

impl LimitedQueue {
    async fn fill(&self, database: &BenchDatabase, jobs: u64) -> Result<(), BenchError> {
        if self.keyed {
            let mut all = Batch::new();
            for n in 0..jobs {
                all.add(Noop::numbered(n))?.fair((n % KEYS).to_string());
            }
            all.enqueue(database.pool()).await?;
        } else {
            database.fill(jobs).await?;
        }
        if let Some(limit) = self.limit {
            Queue::new(database.pool()).set_limit("queue:bench", limit, None).await?;
        }
        Ok(())
    }
}

/// L1: drains jobs under one limit for all jobs.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let limit = Limit::new().concurrency(Limit::MOST);
    against_free(database, plan, sink, "L1", &[LimitedQueue { name: "limited", keyed: false, limit: Some(limit) }]).await
}

/// L2: drains jobs under per-key limits, with concurrency 1 and 5 for each of 10,000 keys.
pub(crate) async fn run_by_key(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let each = |name, most| LimitedQueue { name, keyed: true, limit: Some(Limit::new().concurrency(most).keyed()) };
    against_free(database, plan, sink, "L2", &[each("1 of each key", 1), each("5 of each key", 5)]).await
}

/// L3: drains the fair queues of 10,000 fairness keys.
pub(crate) async fn run_fair(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    against_free(database, plan, sink, "L3", &[LimitedQueue { name: "fair", keyed: true, limit: None }]).await
}

/// L4: drains jobs under a per-key rate limit. The limit allows each key more starts than the key has jobs.
pub(crate) async fn run_rated(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let rate = Limit::new().rate(1000, Duration::from_mins(1)).keyed();
    against_free(database, plan, sink, "L4", &[LimitedQueue { name: "1000/1m of each key", keyed: true, limit: Some(rate) }]).await
}

async fn against_free(
    database: &BenchDatabase,
    plan: Plan,
    sink: &mut FigureSink<'_>,
    workload: &'static str,
    all: &[LimitedQueue],
) -> Result<(), BenchError> {
    let jobs = plan.jobs(100_000);
    for batch in BATCHES {
        let shape = Shape::Batch(batch);
        let (mut free, mut rates): (Vec<f64>, Vec<Vec<f64>>) = (Vec::new(), vec![Vec::new(); all.len()]);
        for _ in 0..plan.runs {
            free.push(fill_and_drain(database, workload, shape, jobs).await?.rate);
            for (queue, rates) in all.iter().zip(&mut rates) {
                let fill = async || queue.fill(database, jobs).await;
                rates.push(fill_by_and_drain(database, workload, shape, fill, (jobs, jobs)).await?.rate);
            }
        }
        sink.figure(Record::new(workload, format!("free, batch {batch}"), "jobs/s", free.clone()))?;
        for (queue, rates) in all.iter().zip(rates) {
            sink.figure(Record::new(workload, format!("{}, batch {batch}", queue.name), "jobs/s", rates).against(&free))?;
        }
    }
    Ok(())
}
