//! L2 and L4: draining under limits by key that are never reached, against a free queue of the same worker.

use std::time::Duration;

use queue_core::{Batch, Limit, Store, operate};

use crate::{
    BenchError, Plan, Say,
    database::{BenchDatabase, Expected},
    drain::{drain, fill_and_drain},
    job::Noop,
    process::Shape,
    report::Record,
};

/// How many keys have jobs waiting.
const KEYS: u64 = 10_000;

/// How many jobs one claim takes at most.
const BATCHES: [usize; 3] = [20, 100, 500];

/// L2: one at once of each of 10,000 keys, and five.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, say: &mut Say<'_>) -> Result<(), BenchError> {
    let each = |most| Limit::new().concurrency(most).keyed();
    against_free(database, plan, say, "L2", &[("1 of each key", each(1)), ("5 of each key", each(5))]).await
}

/// L4: a rate of each key, with more starts than there are.
pub(crate) async fn run_rated(database: &BenchDatabase, plan: Plan, say: &mut Say<'_>) -> Result<(), BenchError> {
    let rate = Limit::new().rate(1000, Duration::from_mins(1)).keyed();
    against_free(database, plan, say, "L4", &[("1000/1m of each key", rate)]).await
}

async fn against_free(
    database: &BenchDatabase,
    plan: Plan,
    say: &mut Say<'_>,
    workload: &'static str,
    limits: &[(&str, Limit)],
) -> Result<(), BenchError> {
    let jobs = plan.jobs(100_000);
    for batch in BATCHES {
        let shape = Shape::Batch(batch);
        let (mut free, mut limited): (Vec<f64>, Vec<Vec<f64>>) = (Vec::new(), vec![Vec::new(); limits.len()]);
        for _ in 0..plan.runs {
            free.push(fill_and_drain(database, workload, shape, jobs).await?.rate);
            for ((_, limit), rates) in limits.iter().zip(&mut limited) {
                let from = database.reset().await?;
                let mut all = Batch::new();
                for n in 0..jobs {
                    all.add(Noop::numbered(n))?.fair((n % KEYS).to_string());
                }
                all.enqueue(database.pool()).await?;
                operate::set_limit(database.pool(), Store::default(), "queue:bench", *limit, None).await?;
                let drained = drain(database, shape, from, 0, jobs).await?;
                database.check(workload, from, Expected { completed: jobs, ..Expected::default() }, Some(&drained.seen)).await?;
                rates.push(drained.rate);
            }
        }
        say.figure(Record::new(workload, format!("free, batch {batch}"), "jobs/s", free.clone()))?;
        for ((name, _), rates) in limits.iter().zip(limited) {
            say.figure(Record::new(workload, format!("{name}, batch {batch}"), "jobs/s", rates).against(&free))?;
        }
    }
    Ok(())
}
