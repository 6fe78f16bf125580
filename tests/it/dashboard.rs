//! Tests the dashboard: its pages, its JSON API over HTTP, and access control.

mod api;
mod attacks;
mod browser;
mod clicks;
mod client;
mod logins;
mod durable;
mod flows;
mod live;
mod logs;
mod many;
mod pages;
mod process;
mod rare;
mod replica;
mod stores;

use queue_core::{Job as _, JobId, Store};
use queue_worker::dashboard::{Options, listen};
use tests::{Act, Do, TestDb};
use tokio::task::JoinHandle;

use self::client::Client;

/// Dashboard for a test's database, running until the end of the test.
struct Served {
    client: Client,
    task: JoinHandle<()>,
}

impl Served {
    async fn new(db: &TestDb) -> Self {
        Self::with(db, Options::default()).await
    }

    async fn with(db: &TestDb, options: Options) -> Self {
        let listening = listen("127.0.0.1:0".parse().unwrap(), options).await.unwrap();
        let client = Client::new(listening.address());
        let task = tokio::spawn(listening.serve(db.pool.clone(), Store::default(), std::future::pending()));
        Self { client, task }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

/// Creates a completed job, a dead job and a waiting job.
async fn some_jobs(db: &TestDb) -> [JobId; 3] {
    let (done, dead) = (enqueue(db, Act::Ok("fine".into())).await, enqueue(db, Act::Terminal("no way".into())).await);
    db.run_until_idle(db.worker()).await;
    [done, dead, enqueue(db, Act::Panic).await]
}
