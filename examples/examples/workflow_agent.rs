//! Agent: a model chooses the next operation, a tool performs the operation, and the model receives the result. The loop ends when the
//! model has an answer. Each call is a step. If the process crashes, the next process continues without repeating answered calls.
//!
//! The model is simulated, but the crash is real: this program starts itself as a worker, kills it, and starts it again.

use std::{
    process::{Child, Command},
    time::Duration,
};

use queue_core::{Handler, Job as _, JobId, JobResult, Store, durable::Durable, job, sqlx};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

/// Maximum number of turns of a conversation. After these turns the job summarises the results and restarts with the summary.
const MOST_TURNS: usize = 6;

#[job(name = "example_agent", durable, max_attempts = 5, output = String)]
#[derive(Clone, Serialize, Deserialize)]
struct Agent {
    task: String,
    /// Results of earlier rounds.
    notes: Vec<u64>,
}

/// Reply of the model.
#[derive(Clone, Serialize, Deserialize)]
enum Reply {
    Call { tool: String, input: u64 },
    Answer(String),
}

impl Handler for Agent {
    async fn run(self, cx: &Durable) -> JobResult<String> {
        let mut seen = self.notes.clone();
        for turn in 0..MOST_TURNS {
            let said: Reply = cx.step(("model", turn), model(cx.pool(), cx.id(), &self.task, &seen)).await?;
            match said {
                Reply::Answer(answer) => return Ok(answer),
                Reply::Call { tool, input } => {
                    let found = cx.step(("tool", turn), call(&tool, input, cx.key(("tool", turn)))).await?;
                    seen.push(found);
                }
            }
        }
        cx.restart(Self { notes: vec![seen.iter().sum()], ..self }).await
    }
}

/// Simulates the model, which requests squares until their sum is more than 200. Records each call, because calls to a real model cost
/// money.
async fn model(pool: &PgPool, job: JobId, task: &str, seen: &[u64]) -> Result<Reply, sqlx::Error> {
    tokio::time::sleep(Duration::from_millis(30)).await;
    let asked = format!("{task}: {seen:?}");
    sqlx::query("insert into example_calls_of_model (job, asked) values ($1, $2)").bind(job).bind(asked).execute(pool).await?;
    let sum: u64 = seen.iter().sum();
    Ok(if sum > 200 { Reply::Answer(format!("{task}: {sum}")) } else { Reply::Call { tool: "square".to_owned(), input: sum % 10 + 1 } })
}

/// Calls a tool. A tool that changes an external system passes the idempotency key to that system, so that the change happens only once.
async fn call(tool: &str, input: u64, _key: String) -> Result<u64, std::io::Error> {
    tokio::time::sleep(Duration::from_millis(30)).await;
    if tool == "square" { Ok(input * input) } else { Err(std::io::Error::other("there is no such tool")) }
}

/// Starts this program as a worker process, which the caller kills later.
fn start_worker() -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).arg("worker").spawn()
}

/// Returns the number of calls to the model.
async fn calls(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar("select count(*) from example_calls_of_model").fetch_one(pool).await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    if std::env::args().nth(1).is_some_and(|arg| arg == "worker") {
        // The worker's jobs are recovered one second after its last heartbeat.
        let worker = Worker::new(database.pool().clone()).register::<Agent>().lease_ttl(Duration::from_secs(1));
        return Ok(worker.run(std::future::pending()).await?);
    }
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();
    let table = "create table if not exists example_calls_of_model (job bigint, asked text); truncate example_calls_of_model";
    sqlx::raw_sql(table).execute(pool).await?;

    let job = Agent { task: "more than 200".to_owned(), notes: Vec::new() }.enqueue(pool).await?;
    let mut first = start_worker()?;
    while calls(pool).await? < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    first.kill()?; // like kill -9 or the loss of a machine
    first.wait()?;
    println!("the first worker is gone after {} calls of the model", calls(pool).await?);

    let mut second = start_worker()?;
    let answer = job.wait(&queue).timeout(Duration::from_mins(1)).await;
    second.kill()?;
    second.wait()?;
    let (answer, calls) = (answer?, calls(pool).await?);
    println!("{answer}, after {calls} calls of the model");
    let again = "select count(*) from (select asked from example_calls_of_model group by asked having count(*) > 1) a";
    let again: i64 = sqlx::query_scalar(again).fetch_one(pool).await?;
    assert!(answer.starts_with("more than 200: ") && again <= 1, "only the call that was under way was made again: {again}");
    Ok(())
}
