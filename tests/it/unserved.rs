//! Tests that workers and the command line report ready jobs of a type or queue that no live worker serves.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use queue_core::{Job as _, JobState, Queue, job};
use serde::{Deserialize, Serialize};
use tests::{Act, Do, TestDb, WorkerProcess, eventually};

const CLI: &str = env!("CARGO_BIN_EXE_test-cli");

/// Job type that no worker in this module knows.
#[job(send_only, queue = "mail")]
#[derive(Serialize, Deserialize)]
struct Forgotten;

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

async fn cli_output(db: &TestDb, arguments: &[&str]) -> String {
    let (url, arguments) = (db.url.clone(), arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>());
    let run = move || Command::new(CLI).args(arguments).env("DATABASE_URL", url).env("NO_COLOR", "1").output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn ready_jobs_that_no_living_worker_serves_are_reported_and_others_are_not() {
    let db = TestDb::new().await;
    let forgotten = Forgotten.enqueue(&db.pool).await.unwrap().id();
    let elsewhere = quick().enqueue(&db.pool).queue("elsewhere").await.unwrap().id();
    Forgotten.enqueue(&db.pool).queue("later").after(Duration::from_hours(1)).await.unwrap();
    let found = async || {
        let found = Queue::new(&db.pool).unserved().await.unwrap();
        found.into_iter().map(|waits| format!("{} {} {}", waits.queue, waits.job_type, waits.jobs)).collect::<Vec<_>>()
    };
    assert_eq!(found().await, ["elsewhere do 1", "mail forgotten 1"], "where there is no worker, nothing is served");

    // This worker serves one queue only. After its first lease duration, the worker reports the jobs of other queues.
    let since = Instant::now();
    let arguments = ["run", "--queue", "default=5", "--lease-ttl", "1s", "--log-format", "json"];
    let process = WorkerProcess::start_with(CLI, &db.url, &arguments, &[("QUEUE_LOG", "info")]);
    let served = quick().enqueue(&db.pool).await.unwrap().id();
    db.until(served, JobState::Completed).await;
    let warnings = || {
        let lines = process.log_since(since).into_iter().filter(|line| line.contains("no live worker serves"));
        let lines: Vec<serde_json::Value> = lines.map(|line| serde_json::from_str(&line).unwrap()).collect();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let what = |line: &serde_json::Value| (text(&line["level"]), text(&line["fields"]["queue"]), text(&line["fields"]["job_type"]));
        lines.iter().map(what).collect::<Vec<_>>()
    };
    eventually("the worker reports it", async || warnings().len() >= 2).await;
    let warned = |queue: &str, job_type: &str| ("WARN".to_owned(), queue.to_owned(), job_type.to_owned());
    assert_eq!(warnings(), [warned("elsewhere", "do"), warned("mail", "forgotten")], "each once in its minute");
    let stats = cli_output(&db, &["stats"]).await;
    assert!(stats.contains("NO WORKER FOR QUEUE"), "{stats}");
    for (id, is_served) in [(forgotten, false), (elsewhere, false), (served, true)] {
        let id = id.to_string();
        let shown = cli_output(&db, &["show", &id]).await;
        assert_eq!(shown.contains("no live worker serves this queue and type"), !is_served, "{shown}");
        let list = cli_output(&db, &["list"]).await;
        let line = list.lines().find(|line| line.starts_with(&id)).unwrap();
        assert_eq!(line.contains("no worker serves it"), !is_served, "{list}");
        let json: serde_json::Value = serde_json::from_str(&cli_output(&db, &["show", "--json", &id]).await).unwrap();
        assert_eq!((&json["unserved"], &json["id"]), (&(!is_served).into(), &id.as_str().into()), "{json}");
        let json: serde_json::Value = serde_json::from_str(&cli_output(&db, &["list", "--json"]).await).unwrap();
        let listed = json["jobs"].as_array().unwrap().iter().find(|job| job["id"] == id.as_str()).unwrap();
        assert_eq!((&listed["unserved"], json.get("next").is_some()), (&(!is_served).into(), true), "{json}");
    }

    // A worker that serves all queues runs the job in the queue `elsewhere`, but does not know the type of the job in the queue `mail`.
    // After the worker's lease has expired, no live worker serves either queue.
    let any = WorkerProcess::start_with(CLI, &db.url, &["run"], &[]);
    db.until(elsewhere, JobState::Completed).await;
    assert_eq!(found().await, ["mail forgotten 1"]);
    db.kill(any).await;
    quick().enqueue(&db.pool).queue("elsewhere").await.unwrap();
    eventually("no worker serves it", async || found().await == ["elsewhere do 1", "mail forgotten 1"]).await;
    // A worker of an older release does not publish its types. It therefore counts as serving every type in its queues.
    let old = "insert into queue.worker (id, expires_at, name, host, pid, version, queues) values (gen_random_uuid(), '9999-01-01', '', '', 1, '', '{mail}')";
    sqlx::query(old).execute(&db.pool).await.unwrap();
    assert_eq!(found().await, ["elsewhere do 1"]);
    drop(process);
    db.finish().await;
}
