//! Code block of `docs/DOCTOR.md`.

use queue_core::{
    Queue, Store,
    operate::{Checkup, Diagnosis},
};
use sqlx::PgPool;

async fn diagnose(pool: PgPool, store: Store) -> Diagnosis {
    let diagnosis = Queue::new(&pool).store(store).doctor(&Checkup::default()).await;
    diagnosis
}
