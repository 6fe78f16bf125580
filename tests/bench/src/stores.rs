//! S1: enqueues jobs into stores on one, two and four servers, and drains all stores with one worker process.
//!
//! The embedded servers run on one machine and share its CPUs and its disk, so the rate shows only what one machine can do. The CPU time
//! per job shows whether a job costs more with more servers.

use std::time::Duration;

use queue_core::Job as _;
use queue_worker::{
    Database,
    embedded::{self, Embedded, EmbeddedOptions},
};
use sqlx::{Postgres, pool::PoolConnection};

use crate::{
    BenchError, FigureSink, Plan,
    database::{BenchDatabase, Expected},
    job::{Noop, unix_ns},
    line::together_on,
    measure::{Cost, Moment, per_job},
    process::{Shape, WorkerProcess},
    report::Record,
};

/// Numbers of servers. Each server has one store.
const SERVERS: [(&str, usize); 3] = [("1 server", 1), ("2 servers", 2), ("4 servers", 4)];

/// Number of producers per server.
const PRODUCERS: u64 = 8;

/// Runs S1 with a constant number of jobs per server. Each run measures one, two and four servers in turn, so that all are measured under
/// the same conditions.
pub(crate) async fn run(plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let (few, many) = (plan.jobs(20_000) / PRODUCERS * PRODUCERS, plan.jobs(200_000) / PRODUCERS * PRODUCERS);
    let mut servers = Vec::new();
    for _ in 0..4 {
        servers.push(StoreServer::start().await?);
    }
    let databases: Vec<&BenchDatabase> = servers.iter().map(|server| &server.database).collect();
    let [mut singly, mut in_bulk, mut drained]: [[StoreRuns; 3]; 3] = Default::default();
    for _ in 0..plan.runs {
        for (nth, (_, count)) in SERVERS.into_iter().enumerate() {
            // Also resets the stores that are not measured now, so that autovacuum does not process their earlier jobs meanwhile.
            Stores(&databases).reset().await?;
            let stores = Stores(&databases[..count]);
            singly[nth].add(stores.enqueue_singly(few).await?);
            in_bulk[nth].add(stores.enqueue_in_bulk(many).await?);
            drained[nth].add(stores.drain(many).await?);
        }
    }
    show("enqueue", "producer us/job", few, &singly, sink)?;
    show("in bulk", "producer us/job", many, &in_bulk, sink)?;
    show("drain", "worker us/job", many, &drained, sink)?;
    for server in servers {
        server.database.drop().await?;
    }
    Ok(())
}

/// Results of a measurement for one number of servers.
#[derive(Default)]
struct StoreRuns {
    /// Jobs per second of each run.
    rates: Vec<f64>,
    costs: Vec<Cost>,
}

impl StoreRuns {
    fn add(&mut self, (rate, cost): (f64, Cost)) {
        self.rates.push(rate);
        self.costs.push(cost);
    }
}

/// Shows the rates and the costs per job, each with its ratio to the result with one server. `jobs` is the number of jobs per server.
fn show(kind: &str, client: &'static str, jobs: u64, runs: &[StoreRuns; 3], sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
    let records = |(name, count): (&str, usize), runs: &StoreRuns| {
        let variant = format!("{kind}, {name}");
        let costs = per_job("S1", &variant, client, jobs * count as u64, &runs.costs);
        [vec![Record::new("S1", variant, "jobs/s", runs.rates.clone())], costs].concat()
    };
    let base = records(SERVERS[0], &runs[0]);
    for (servers, runs) in SERVERS.into_iter().zip(runs) {
        sink.figures(records(servers, runs).into_iter().zip(&base).map(|(record, base)| record.against(&base.runs)))?;
    }
    Ok(())
}

/// Database with an empty store on a server of its own. The server stops when the value is dropped.
struct StoreServer {
    database: BenchDatabase,
    _server: Embedded,
}

impl StoreServer {
    async fn start() -> Result<Self, BenchError> {
        let options = EmbeddedOptions { durable: true, ..EmbeddedOptions::temporary() };
        let server = embedded::start(options).await.map_err(queue_worker::Error::from)?;
        let admin = Database::connect(server.url()).await?;
        let database = BenchDatabase::create(&admin).await;
        admin.close().await;
        Ok(Self { database: database?, _server: server })
    }
}

/// Stores with the same number of jobs each.
struct Stores<'d>(&'d [&'d BenchDatabase]);

impl Stores<'_> {
    /// Enqueues `jobs` jobs into each store, one per transaction. Returns the rate and the cost.
    async fn enqueue_singly(&self, jobs: u64) -> Result<(f64, Cost), BenchError> {
        let each = jobs / PRODUCERS;
        self.enqueue(jobs, move |mut connection, producer| async move {
            for n in producer * each..(producer + 1) * each {
                Noop::numbered(n).enqueue(&mut *connection).await?;
            }
            Ok(())
        })
        .await
    }

    /// Enqueues `jobs` jobs into each store, with one transaction per producer. Returns the rate and the cost.
    async fn enqueue_in_bulk(&self, jobs: u64) -> Result<(f64, Cost), BenchError> {
        let each = jobs / PRODUCERS;
        self.enqueue(jobs, move |mut connection, producer| async move {
            let numbers = producer * each..(producer + 1) * each;
            Noop::enqueue_all(numbers.map(Noop::numbered), &mut *connection).await?;
            Ok(())
        })
        .await
    }

    async fn enqueue<W>(&self, jobs: u64, work: impl Fn(PoolConnection<Postgres>, u64) -> W) -> Result<(f64, Cost), BenchError>
    where
        W: Future<Output = Result<(), BenchError>> + Send + 'static,
    {
        let starts = self.reset().await?;
        let mut connections = Vec::new();
        for database in self.0 {
            for _ in 0..PRODUCERS {
                connections.push(database.connection().await?);
            }
        }
        let begin = self.now().await?;
        let elapsed = together_on(connections, work).await?;
        let cost = self.cost(begin).await?;
        self.check(&starts, Expected { ready: jobs, ..Expected::default() }).await?;
        Ok((self.total(jobs) as f64 / elapsed.as_secs_f64(), cost))
    }

    /// Drains the `jobs` jobs in each store with one worker process. Returns the rate and the cost.
    async fn drain(&self, jobs: u64) -> Result<(f64, Cost), BenchError> {
        let begin = self.now().await?;
        let total = self.total(jobs);
        let mut worker = WorkerProcess::start_on(self.0, Shape::Defaults, total)?;
        let first = worker.reached().await?;
        for database in self.0 {
            database.until_completed(0, jobs).await?;
        }
        let elapsed = Duration::from_nanos(unix_ns().saturating_sub(first));
        let cpu = worker.cpu();
        let seen = worker.stop().await?;
        for database in self.0 {
            database.until_alone().await?;
        }
        let cost = Cost { client: cpu, ..self.cost(begin).await? };
        self.check(&vec![0; self.0.len()], Expected { completed: jobs, ..Expected::default() }).await?;
        if (seen.runs, seen.distinct) != (total, total) {
            let what = format!("{total} jobs completed, but {} ran, in {} runs", seen.distinct, seen.runs);
            return Err(BenchError::Wrong { workload: "S1", what });
        }
        Ok((total as f64 / elapsed.as_secs_f64(), cost))
    }

    /// Returns the number of jobs in all stores.
    fn total(&self, jobs: u64) -> u64 {
        jobs * self.0.len() as u64
    }

    async fn reset(&self) -> Result<Vec<i64>, BenchError> {
        let mut starts = Vec::new();
        for database in self.0 {
            starts.push(database.reset().await?);
        }
        Ok(starts)
    }

    async fn now(&self) -> Result<Vec<Moment>, BenchError> {
        let mut moments = Vec::new();
        for database in self.0 {
            moments.push(Moment::now(database).await?);
        }
        Ok(moments)
    }

    /// Returns the resources used on all servers since `begin`, with the CPU time of the benchmark counted once.
    async fn cost(&self, begin: Vec<Moment>) -> Result<Cost, BenchError> {
        let mut total: Option<Cost> = None;
        for (database, moment) in self.0.iter().zip(begin) {
            let cost = moment.cost(database).await?;
            total = Some(total.map_or(cost, |total| Cost { client: total.client, ..total.and(&cost) }));
        }
        total.ok_or_else(|| BenchError::Process("has no server".to_owned()))
    }

    async fn check(&self, starts: &[i64], expected: Expected) -> Result<(), BenchError> {
        for (database, from) in self.0.iter().zip(starts) {
            database.check("S1", *from, expected, None).await?;
        }
        Ok(())
    }
}
