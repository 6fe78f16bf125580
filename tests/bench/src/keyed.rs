//! W10: measures the drain of jobs with ordering keys. In one case, all keys have the same load. In the other case, 30 % of the jobs have
//! the same hot key and run one at a time.

use queue_core::Batch;

use crate::{
    BenchError, FigureSink, Plan,
    database::BenchDatabase,
    drain::{fill_and_drain, fill_by_and_drain},
    job::Noop,
    process::Shape,
    report::Record,
};

/// Number of keys besides the hot key.
const KEYS: u64 = 2000;

/// W10: measures W3 with 2,000 keys of equal load. Then gives the first 30 % of the jobs one hot key, and measures the drain until 70 % of
/// all jobs have run. The other 70 % of the jobs have other keys.
pub(crate) async fn run(database: &BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
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
    sink.figure(Record::new("W10", "line, W3 of as many", "jobs/s", plain.clone()))?;
    sink.figure(Record::new("W10", "uniform", "jobs/s", uniform.clone()).against(&plain))?;
    sink.figure(Record::new("W10", "hot", "jobs/s", behind).against(&uniform))
}

/// Enqueues `jobs` jobs. The first `hot` jobs share the hot key.
async fn fill(database: &BenchDatabase, hot: u64, jobs: u64) -> Result<(), BenchError> {
    let mut batch = Batch::new();
    for n in 0..jobs {
        let key = if n < hot { "hot".to_owned() } else { (n % KEYS).to_string() };
        batch.add(Noop::numbered(n))?.key(key);
    }
    batch.enqueue(database.pool()).await?;
    Ok(())
}
