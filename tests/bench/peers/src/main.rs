//! Compares other queues on PostgreSQL with this queue. The measurements alternate between the queues in one run. The other queues are
//! `graphile_worker` 0.14 (a job queue in Rust) and `pgmq` (a message queue). The SQL of `pgmq` runs on plain PostgreSQL, without the
//! extension.
//!
//! ```sh
//! cargo run --release --manifest-path tests/bench/peers/Cargo.toml -- --database-url postgres://user:password@host/name
//! ```
//!
//! Each measurement has its own database, `queue_peers_<pid>`, which is created on the server and dropped afterwards. `README.md` explains
//! the table of results. The crate is a separate workspace, so that a build of the main workspace does not compile the other queues.

mod client;
mod database;
mod job;
mod process;
mod table;
mod worker;
mod workload;

use clap::{Parser, Subcommand};

use crate::{
    client::Peer,
    database::Server,
    table::{Figure, draw, median},
    worker::Shape,
    workload::{Entry, Workload, measure},
};

/// Compare other queues on PostgreSQL with this queue
#[derive(Debug, Parser)]
struct Options {
    /// URL of the server. The role must be allowed to create databases.
    #[arg(long, env = "DATABASE_URL")]
    database_url: String,
    /// Number of jobs to drain. Slow queues drain fewer jobs; see the column `jobs a run` of the results.
    #[arg(long, default_value_t = 50_000)]
    jobs: u64,
    /// Number of runs of each measurement.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Duration of W4 in seconds; W4 enqueues a job every 20 ms.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Run only these measurements (W1, W3, W3-tuned, W3-defaults, W4); default: all.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    #[command(subcommand)]
    command: Option<Hidden>,
}

impl Options {
    fn wants(&self, group: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| group.starts_with(name.as_str()))
    }
}

#[derive(Debug, Subcommand)]
enum Hidden {
    /// Worker process of the benchmark.
    #[command(hide = true)]
    Work { peer: Peer, shape: Shape, goal: u64 },
}

/// Workload with the names of its measured values and the queues to compare. Our queue is the first entry.
struct Group {
    name: &'static str,
    workload: Workload,
    /// Name and unit of each value of a measurement.
    figures: [(&'static str, &'static str); 2],
    entries: Vec<(&'static str, Entry)>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if let Some(Hidden::Work { peer, shape, goal }) = options.command {
        return process::live(peer, shape, goal, &options.database_url).await;
    }
    let server = Server::at(&options.database_url)?;
    println!("{}; {} cores here\n{}", server.describe().await?, std::thread::available_parallelism()?, load("before"));
    let mut figures = Vec::new();
    for group in groups(&options).into_iter().filter(|group| options.wants(group.name)) {
        figures.extend(compare(&server, &group, options.runs).await?);
    }
    println!("{}\n\n{}", load("after"), draw(&figures));
    Ok(())
}

/// Formats the load average of this machine.
fn load(when: &str) -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("load {when}: {}", load.split(' ').take(3).collect::<Vec<_>>().join(", "))
}

/// Measures the queues in turn, in an order that is reversed after each run. A temporarily slow machine therefore affects all queues.
async fn compare(server: &Server, group: &Group, runs: usize) -> anyhow::Result<Vec<Figure>> {
    let mut values = vec![Vec::new(); group.entries.len()];
    for run in 0..runs {
        let mut turn: Vec<usize> = (0..group.entries.len()).collect();
        if run % 2 == 1 {
            turn.reverse();
        }
        for at in turn {
            let (queue, entry) = group.entries[at];
            let found = measure(server, group.workload, entry).await?;
            eprintln!("{} {queue}: {found:.1?}", group.name);
            values[at].push(found);
        }
    }
    let mut figures = Vec::new();
    for (which, (what, unit)) in group.figures.into_iter().enumerate() {
        let of = |at: usize| values[at].iter().map(|found| found[which]).collect::<Vec<f64>>();
        let ours = median(&of(0));
        for (at, (queue, entry)) in group.entries.iter().enumerate() {
            figures.push(Figure { what, queue, unit, jobs: entry.jobs, runs: of(at), ours: (at > 0).then_some(ours) });
        }
    }
    Ok(figures)
}

/// Number of jobs for `graphile_worker` with default settings. On two cores, it runs two jobs per second with these settings, so the
/// measurement takes ten seconds.
const GRAPHILE_BY_DEFAULT: u64 = 20;

fn groups(options: &Options) -> Vec<Group> {
    let entry = |peer, shape, jobs| Entry { peer, shape, wakes: true, jobs };
    let silent = |entry| Entry { wakes: false, ..entry };
    let (all, tenth, singly) = (options.jobs, (options.jobs / 10).max(1), (options.jobs / 40).max(1) * 8);
    let trickle = options.seconds * 50;
    vec![
        Group {
            name: "W1",
            workload: Workload::Enqueue,
            figures: [("W1 one a transaction", "jobs/s"), ("W1 WAL of it", "B/job")],
            entries: vec![
                ("ours", entry(Peer::Ours, Shape::Defaults, singly)),
                ("graphile_worker", entry(Peer::Graphile, Shape::Defaults, singly)),
                ("pgmq, wakes", entry(Peer::Pgmq, Shape::Defaults, singly)),
                ("pgmq, wakes nobody", silent(entry(Peer::Pgmq, Shape::Defaults, singly))),
            ],
        },
        Group {
            name: "W3-tuned",
            workload: Workload::Drain,
            figures: [("W3 tuned", "jobs/s"), ("W3 tuned, WAL", "B/job")],
            entries: vec![
                ("ours", entry(Peer::Ours, Shape::Tuned, all)),
                ("graphile_worker", entry(Peer::Graphile, Shape::Tuned, all)),
                ("pgmq, deletes", silent(entry(Peer::Pgmq, Shape::Tuned, all))),
                ("pgmq, archives", silent(entry(Peer::Pgmq, Shape::Archived, all))),
            ],
        },
        Group {
            name: "W3-defaults",
            workload: Workload::Drain,
            figures: [("W3 defaults", "jobs/s"), ("W3 defaults, WAL", "B/job")],
            entries: vec![
                ("ours", entry(Peer::Ours, Shape::Defaults, all)),
                ("graphile_worker", entry(Peer::Graphile, Shape::Defaults, GRAPHILE_BY_DEFAULT.min(all))),
                ("pgmq, one at a time", silent(entry(Peer::Pgmq, Shape::Defaults, tenth))),
            ],
        },
        Group {
            name: "W4",
            workload: Workload::Trickle,
            figures: [("W4 p50", "ms"), ("W4 p99", "ms")],
            entries: vec![
                ("ours", entry(Peer::Ours, Shape::Defaults, trickle)),
                ("graphile_worker", entry(Peer::Graphile, Shape::Defaults, trickle)),
                ("pgmq, wakes", entry(Peer::Pgmq, Shape::Defaults, trickle)),
            ],
        },
    ]
}
