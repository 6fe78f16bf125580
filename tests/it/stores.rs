//! Tests a worker process that serves many stores.

mod idle;
mod moves;
mod tenants;
mod work;

use std::time::Duration;

use queue_core::{
    Job as _, JobId, JobState, Store, migrate,
    stores::{Member, Roster},
};
use queue_worker::{Error, StoresWorker};
use sqlx::PgPool;
use tests::{Act, Do};
use tokio::{sync::oneshot, task::JoinHandle};

/// Running worker and the sender that stops it.
struct RunningWorker {
    stop: oneshot::Sender<()>,
    worker: JoinHandle<Result<(), Error>>,
}

impl RunningWorker {
    fn start(worker: StoresWorker) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let worker = tokio::spawn(worker.run(async {
            let _ = stopped.await;
        }));
        Self { stop, worker }
    }

    async fn stop(self) {
        drop(self.stop);
        tokio::time::timeout(Duration::from_mins(1), self.worker).await.unwrap().unwrap().unwrap();
    }
}

/// Creates and migrates a store named `name` in the database of the pool.
pub(crate) async fn make(pool: &PgPool, name: &str) -> Member {
    let member = Member::new(name, pool, Store::new(name).unwrap()).unwrap();
    migrate(pool, member.store()).await.unwrap();
    member
}

/// Creates a worker that runs [`Do`] jobs from all stores of the roster, with a short lease TTL and grace period.
fn worker_over(roster: &Roster) -> StoresWorker {
    let worker =
        StoresWorker::new(roster, |_, worker| worker.register::<Do>().lease_ttl(Duration::from_secs(5)).grace(Duration::from_secs(2)));
    worker.linger(Duration::from_millis(500))
}

async fn enqueue(member: &Member, act: Act) -> JobId {
    Do { act }.enqueue(member.pool()).store(member.store()).await.unwrap().id()
}

async fn state(member: &Member, id: JobId) -> Option<JobState> {
    let query = member.store().sql("select state from queue.jobs where id = $1");
    let found: Option<String> = sqlx::query_scalar(query).bind(id).fetch_optional(member.pool()).await.unwrap();
    found.map(|state| state.parse().unwrap())
}

async fn until_done(member: &Member, id: JobId) {
    tests::eventually(&format!("{id} in {} is completed", member.name()), async || state(member, id).await == Some(JobState::Completed))
        .await;
}
