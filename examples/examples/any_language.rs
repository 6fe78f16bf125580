//! Enqueues jobs through SQL functions, as any program with a PostgreSQL client can. The job types are defined in Rust.

use queue_core::{Context, Handler, JobId, JobResult, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

#[job(name = "example_greet")]
#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Handler for Greet {
    async fn run(self, _: &Context) -> JobResult {
        println!("hello, {}", self.name);
        Ok(())
    }
}

/// Call that enqueues a job from psql, Python or a trigger, in the caller's transaction. Omitted parameters have defaults.
const BY_NAME: &str = r#"select queue.enqueue(job_type => 'example_greet', payload => '{"name": "psql"}')"#;

/// Statement that enqueues one job per row of a query, with a type, a payload and options.
const MANY: &str = "
select queue.enqueue('example_greet', jsonb_build_object('name', name), '{\"priority\": 150}')
from unnest(array['ada', 'bob']) name";

/// Call whose payload does not fit the job type. The job is retried, because a release that can read the payload may be deployed later.
/// After the last attempt the job is a dead letter, whose error names the mismatch.
const WRONG: &str = r#"select queue.enqueue('example_greet', '{"nom": "psql"}', '{"max_attempts": 1}')"#;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let mut jobs: Vec<JobId> = Vec::new();
    for statement in [BY_NAME, MANY, WRONG] {
        jobs.extend(sqlx::query_scalar::<_, JobId>(statement).fetch_all(pool).await?);
    }
    examples::run_until_finished(Worker::new(pool.clone()), pool, &jobs).await?;
    for (job, wanted) in jobs.into_iter().zip(["completed", "completed", "completed", "dead"]) {
        let job = examples::find_job(pool, job).await?;
        println!("#{} {} {}", job.id, job.state, job.error.as_deref().unwrap_or_default());
        assert_eq!(job.state.name(), wanted);
    }
    Ok(())
}
