//! L1: draining under a limit that is never reached, against a free queue of the same worker, at several sizes of batch.

use queue_core::{Limit, Store, operate};

use crate::{
    BenchError, Plan, Say,
    database::{BenchDatabase, Expected},
    drain::{drain, fill_and_drain},
    process::Shape,
    report::Record,
};

/// How many jobs one claim takes at most.
const BATCHES: [usize; 3] = [20, 100, 500];

/// L1: each beside the free queue of the same run.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, say: &mut Say<'_>) -> Result<(), BenchError> {
    for batch in BATCHES {
        let (jobs, shape) = (plan.jobs(100_000), Shape::Batch(batch));
        let (mut free, mut limited): (Vec<f64>, Vec<f64>) = Default::default();
        for _ in 0..plan.runs {
            free.push(fill_and_drain(database, "L1", shape, jobs).await?.rate);

            let from = database.reset().await?;
            database.fill(jobs).await?;
            operate::set_limit(database.pool(), Store::default(), "queue:bench", Limit::new().concurrency(Limit::MOST), None).await?;
            let drained = drain(database, shape, from, 0, jobs).await?;
            database.check("L1", from, Expected { completed: jobs, ..Expected::default() }, Some(&drained.seen)).await?;
            limited.push(drained.rate);
        }
        say.figure(Record::new("L1", format!("free, batch {batch}"), "jobs/s", free.clone()))?;
        say.figure(Record::new("L1", format!("limited, batch {batch}"), "jobs/s", limited).against(&free))?;
    }
    Ok(())
}
