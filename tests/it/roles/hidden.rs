//! Tests row-level security: rows that are hidden from a worker are not mistaken for missing rows.

use std::time::Instant;

use queue_core::{
    Job as _, Queue,
    operate::{Checkup, FindingKind},
};
use tests::{WorkerProcess, eventually};

use super::{
    RoledStore,
    work::{WORKER, cli, ok, until},
};

/// Regression test: row-level security on `job` alone hid the payloads, so each claimed job became a dead letter. Row-level security on
/// `ready` left all jobs waiting.
#[tokio::test]
#[ignore = "deep"]
async fn hidden_rows_lead_to_no_verdict_and_their_table_is_named() {
    let store = RoledStore::new().await;
    let worker = WorkerProcess::start_logged(WORKER, &store.url("runner"), &[]);
    for table in ["job", "ready", "lease", "done", "worker", "lane"] {
        until(&store, ok().enqueue(&store.db.pool).await.unwrap().id(), "completed").await;
        let since = Instant::now();
        store.run(&format!("alter table queue.{table} enable row level security")).await;
        let mut jobs = Vec::new();
        for _ in 0..10 {
            jobs.push(ok().enqueue(&store.db.pool).await.unwrap().id());
        }
        // The log escapes quotes.
        let line = format!("row-level security policy for table \\\"{table}\\\"");
        eventually(&format!("the log names {table}"), async || worker.log_since(since).iter().any(|logged| logged.contains(&line))).await;
        let (code, output) = cli(&store, "runner", &["stats"]);
        assert!(code != Some(0) && output.contains("row level security") && output.contains(table), "{code:?} {output}");
        let found = Queue::new(&store.db.pool).doctor(&Checkup::default()).await.findings;
        let found: Vec<_> = found.into_iter().filter(|finding| finding.kind == FindingKind::RowSecurity).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        store.run(&found[0].fix).await;
        for job in jobs {
            until(&store, job, "completed").await;
        }
    }
    worker.kill();
    store.server.stop().unwrap();
}
