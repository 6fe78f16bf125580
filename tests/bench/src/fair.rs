//! L3: jobs of many tenants that take turns, against as many that do not.

use queue_core::Batch;

use crate::{
    BenchError, Plan, Say,
    database::{BenchDatabase, Expected},
    drain::{drain, fill_and_drain},
    job::Noop,
    process::Shape,
    report::Record,
};

/// With jobs waiting.
const TENANTS: u64 = 10_000;

/// By the most jobs of a claim.
const BATCHES: [(usize, &str, &str); 3] =
    [(500, "free, batch 500", "fair, batch 500"), (100, "free, batch 100", "fair, batch 100"), (20, "free, batch 20", "fair, batch 20")];

/// L3: W3 of 10,000 tenants by fair keys, for three sizes of claims.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, say: &mut Say<'_>) -> Result<(), BenchError> {
    let jobs = plan.jobs(100_000);
    for (batch, free, fair) in BATCHES {
        let (mut plain, mut turns): (Vec<f64>, Vec<f64>) = Default::default();
        for _ in 0..plan.runs {
            plain.push(fill_and_drain(database, "L3", Shape::Batch(batch), jobs).await?.rate);

            let from = database.reset().await?;
            let mut all = Batch::new();
            for n in 0..jobs {
                all.add(Noop::numbered(n))?.fair((n % TENANTS).to_string());
            }
            all.enqueue(database.pool()).await?;
            let drained = drain(database, Shape::Batch(batch), from, 0, jobs).await?;
            database.check("L3", from, Expected { completed: jobs, ..Expected::default() }, Some(&drained.seen)).await?;
            turns.push(drained.rate);
        }
        say.figure(Record::new("L3", free, "jobs/s", plain.clone()))?;
        say.figure(Record::new("L3", fair, "jobs/s", turns).against(&plain))?;
    }
    Ok(())
}
