//! L1 to L4: draining jobs under limits that are never reached, and jobs that take turns, each against a free queue of the same run, at several sizes
//! of batch.

use std::time::Duration;

use queue_core::{Batch, Limit, Store, operate};

use crate::{
    BenchError, Plan, Say,
    database::BenchDatabase,
    drain::{fill_and_drain, fill_by_and_drain},
    job::Noop,
    process::Shape,
    report::Record,
};

/// How many keys have jobs waiting, where they have keys.
const KEYS: u64 = 10_000;

/// How many jobs one claim takes at most.
const BATCHES: [usize; 3] = [20, 100, 500];

/// What is drained.
struct Kept {
    name: &'static str,
    /// Whether each job has one of the keys.
    keyed: bool,
    limit: Option<Limit>,
}

impl Kept {
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
            operate::set_limit(database.pool(), Store::default(), "queue:bench", limit, None).await?;
        }
        Ok(())
    }
}

/// L1: under a limit of all jobs.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, say: &mut Say<'_>) -> Result<(), BenchError> {
    let limit = Limit::new().concurrency(Limit::MOST);
    against_free(database, plan, say, "L1", &[Kept { name: "limited", keyed: false, limit: Some(limit) }]).await
}

/// L2: one at once of each of 10,000 keys, and five.
pub(crate) async fn run_by_key(database: &BenchDatabase, plan: Plan, say: &mut Say<'_>) -> Result<(), BenchError> {
    let each = |name, most| Kept { name, keyed: true, limit: Some(Limit::new().concurrency(most).keyed()) };
    against_free(database, plan, say, "L2", &[each("1 of each key", 1), each("5 of each key", 5)]).await
}

/// L3: of 10,000 tenants that take turns.
pub(crate) async fn run_fair(database: &BenchDatabase, plan: Plan, say: &mut Say<'_>) -> Result<(), BenchError> {
    against_free(database, plan, say, "L3", &[Kept { name: "fair", keyed: true, limit: None }]).await
}

/// L4: a rate of each key, with more starts than there are.
pub(crate) async fn run_rated(database: &BenchDatabase, plan: Plan, say: &mut Say<'_>) -> Result<(), BenchError> {
    let rate = Limit::new().rate(1000, Duration::from_mins(1)).keyed();
    against_free(database, plan, say, "L4", &[Kept { name: "1000/1m of each key", keyed: true, limit: Some(rate) }]).await
}

async fn against_free(
    database: &BenchDatabase,
    plan: Plan,
    say: &mut Say<'_>,
    workload: &'static str,
    all: &[Kept],
) -> Result<(), BenchError> {
    let jobs = plan.jobs(100_000);
    for batch in BATCHES {
        let shape = Shape::Batch(batch);
        let (mut free, mut rates): (Vec<f64>, Vec<Vec<f64>>) = (Vec::new(), vec![Vec::new(); all.len()]);
        for _ in 0..plan.runs {
            free.push(fill_and_drain(database, workload, shape, jobs).await?.rate);
            for (kept, rates) in all.iter().zip(&mut rates) {
                let fill = async || kept.fill(database, jobs).await;
                rates.push(fill_by_and_drain(database, workload, shape, fill, (jobs, jobs)).await?.rate);
            }
        }
        say.figure(Record::new(workload, format!("free, batch {batch}"), "jobs/s", free.clone()))?;
        for (kept, rates) in all.iter().zip(rates) {
            say.figure(Record::new(workload, format!("{}, batch {batch}", kept.name), "jobs/s", rates).against(&free))?;
        }
    }
    Ok(())
}
