//! W10: jobs with ordering keys, many keys alike, and with one in front that has a third of all jobs and can do only one at a time.

use queue_core::Batch;

use crate::{
    BenchError, Plan, Say,
    database::BenchDatabase,
    drain::{fill_and_drain, fill_by_and_drain},
    job::Noop,
    process::Shape,
    report::Record,
};

/// Besides the hot one.
const KEYS: u64 = 2000;

/// W10: W3 of 2,000 keys alike; and the same behind 30 % of a hot key, until as many jobs have run as there are of the others.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, say: &mut Say<'_>) -> Result<(), BenchError> {
    let jobs = plan.jobs(200_000);
    let hot = jobs * 3 / 10;
    let (mut plain, mut uniform, mut behind): (Vec<f64>, Vec<f64>, Vec<f64>) = Default::default();
    for _ in 0..plan.runs {
        plain.push(fill_and_drain(database, "W10", Shape::Defaults, jobs).await?.rate);
        for (hot, rates) in [(0, &mut uniform), (hot, &mut behind)] {
            let fill = async || fill(database, hot, jobs).await;
            rates.push(fill_by_and_drain(database, "W10", Shape::Defaults, fill, (jobs, jobs - hot)).await?.rate);
        }
    }
    say.figure(Record::new("W10", "line, W3 of as many", "jobs/s", plain.clone()))?;
    say.figure(Record::new("W10", "uniform", "jobs/s", uniform.clone()).against(&plain))?;
    say.figure(Record::new("W10", "hot", "jobs/s", behind).against(&uniform))
}

/// So many jobs of which the first `hot` have one key.
async fn fill(database: &BenchDatabase, hot: u64, jobs: u64) -> Result<(), BenchError> {
    let mut batch = Batch::new();
    for n in 0..jobs {
        let key = if n < hot { "hot".to_owned() } else { (n % KEYS).to_string() };
        batch.add(Noop::numbered(n))?.key(key);
    }
    batch.enqueue(database.pool()).await?;
    Ok(())
}
