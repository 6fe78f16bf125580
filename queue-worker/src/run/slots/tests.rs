use chrono::DateTime;
use queue_core::{
    Context, Handler, JobResult, Store, job,
    runner::{ClaimedJob, ReportSender, States},
};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::*;
use crate::{lanes::KnownLeases, settle::DatabaseBackend};

/// Never ends by itself.
#[job]
#[derive(serde::Serialize, serde::Deserialize)]
struct Hang;

impl Handler for Hang {
    async fn run(self, _: &Context) -> JobResult {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_handler_that_begins_while_its_lease_is_abandoned_is_dropped() {
    let pool = PgPoolOptions::new().connect_lazy_with(PgConnectOptions::new());
    let (settle, mut settled) = tokio::sync::mpsc::channel(1);
    let backend = Arc::new(DatabaseBackend { pool: pool.clone(), store: Store::default() });
    let shared = Shared {
        pool,
        states: States::default(),
        handlers: Handle::current(),
        backend,
        reports: ReportSender::open().0,
        middleware: Vec::new(),
    };
    let mut registry = Registry::default();
    registry.register::<Hang>().unwrap();
    let (bell, handlers, cancel_grace) = (Arc::default(), Handle::current(), Duration::ZERO);
    let (shared, pauses, life, teller) = (Arc::new(shared), Pauses::new(registry.clone()), Life::new(), Teller::default());
    let context = SlotContext { registry, shared, settle, bell, pauses, life, handlers, cancel_grace, teller, takes_batches: false };
    let slots = Slots::new(&Arc::new(context), 1);
    lock(&slots.jobs).queued.push_back(Arc::new(Claimed {
        job: hang(),
        batch: 1,
        holding: KnownLeases::default().begin(),
        begin_by: None,
    }));

    let slot = lock(&slots.jobs).open();
    let attempt = slots.next(slot).0.unwrap();
    slots.abandon();
    tokio::time::timeout(Duration::from_secs(20), slots.run(slot, attempt)).await.expect("it is told, though it has only just begun");
    assert!(settled.try_recv().is_err() && slots.is_idle(), "others have the job");
}

fn hang() -> ClaimedJob {
    let (token, id, payload) = (Uuid::nil(), JobId(1), Some("null".to_owned()));
    let claimed_at = DateTime::UNIX_EPOCH;
    ClaimedJob {
        token,
        id,
        lane: 1,
        attempt: 1,
        crashes: 0,
        max_attempts: 1,
        job_type: "hang",
        version: 1,
        payload,
        meta: None,
        key: None,
        claimed_at,
    }
}
