//! Flow: several jobs are enqueued in one transaction. Some jobs wait for other jobs and receive the outputs of those jobs.

use queue_core::{
    Context, Handler, JobResult, Store,
    flow::{Flow, NodeOutput},
    job,
};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

#[job(name = "example_fetch", output = String)]
#[derive(Serialize, Deserialize)]
struct Fetch {
    page: String,
}

impl Handler for Fetch {
    async fn run(self, _: &Context) -> JobResult<String> {
        Ok(format!("all of {}", self.page))
    }
}

/// Job that compares the outputs of two other jobs. It runs after both jobs, and its payload contains their outputs.
#[job(name = "example_compare", output = bool)]
#[derive(Serialize, Deserialize)]
struct Compare {
    before: NodeOutput<String>,
    after: NodeOutput<String>,
}

impl Handler for Compare {
    async fn run(self, _: &Context) -> JobResult<bool> {
        let (before, after) = (self.before.value()?, self.after.value()?);
        println!("{before:?} against {after:?}");
        Ok(before != after)
    }
}

#[job(name = "example_tell")]
#[derive(Serialize, Deserialize)]
struct Tell {
    text: String,
}

impl Handler for Tell {
    async fn run(self, _: &Context) -> JobResult {
        println!("{}", self.text);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();

    let mut flow = Flow::new("compare");
    let before = flow.add("before", Fetch { page: "yesterday".into() });
    let after = flow.add("after", Fetch { page: "today".into() });
    let compare = flow.add("compare", Compare { before: before.output(), after: after.output() });
    flow.add("done", Tell { text: "compared".into() }).after(&compare);
    flow.add("sorry", Tell { text: "nothing to compare".into() }).on_dead(&compare);
    let mut tx = pool.begin().await?;
    let flow = flow.enqueue(&mut tx).await?;
    tx.commit().await?;

    let jobs: Vec<_> = flow.jobs().map(|(_, job)| job).collect();
    examples::run_until_finished(Worker::new(pool.clone()), pool, &jobs).await?;
    for node in queue.job(flow.id()).flow().await? {
        println!("{}: {}", node.name, node.state.as_deref().unwrap_or("gone"));
        // `sorry` runs only if `compare` becomes a dead letter. `compare` has completed, so `sorry` is cancelled.
        assert_eq!(node.state.as_deref(), Some(if node.name == "sorry" { "cancelled" } else { "completed" }));
    }
    Ok(())
}
