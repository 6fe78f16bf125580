//! Route of the overview of a store.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use queue_core::operate::{self, Busiest, Count, Oldest, Pause, StateCount, Unserved, WorkerRecord};
use serde::Serialize;
use sqlx::PgConnection;
use utoipa::ToSchema;

use crate::dashboard::{
    app::{App, AppState},
    problem::{ErrorResponse, HandlerResult},
};

/// Job counts, longest waits, pauses and workers of a store.
#[derive(Serialize, ToSchema)]
pub(in crate::dashboard) struct Overview {
    /// Database time at which the overview was loaded.
    pub(in crate::dashboard) now: DateTime<Utc>,
    /// Number of jobs by queue, job type and state, for the 40 pairs of queue and type with the most jobs. A count with `partial` is a
    /// lower bound.
    pub(in crate::dashboard) counts: Vec<Count>,
    /// Total number of jobs by state.
    pub(in crate::dashboard) totals: Vec<StateCount>,
    /// Number of further pairs of queue and type.
    pub(in crate::dashboard) more: i64,
    /// Oldest ready jobs of the 40 queues that have waited longest, longest wait first.
    pub(in crate::dashboard) oldest: Vec<Oldest>,
    /// Pauses in effect.
    pub(in crate::dashboard) paused: Vec<Pause>,
    /// Ready jobs that no live worker serves.
    pub(in crate::dashboard) unserved: Vec<Unserved>,
    /// Registered workers.
    pub(in crate::dashboard) workers: Vec<WorkerRecord>,
}

/// Maximum number of pairs of queue and type with counts, and of queues with their oldest job.
const MAX_QUEUES: u16 = 40;

/// Loads the overview in a few bounded statements.
pub(in crate::dashboard) async fn load_overview(app: &App) -> HandlerResult<Overview> {
    let (mut session, store) = (app.begin_read().await?, app.store);
    let (busiest, oldest) = busiest_and_oldest(app, &mut session, MAX_QUEUES).await?;
    let connection = &mut *session;
    Ok(Overview {
        now: operate::now(&mut *connection, store).await?,
        counts: busiest.counts,
        totals: busiest.totals,
        more: busiest.more,
        oldest,
        paused: operate::pauses(&mut *connection, store).await?,
        unserved: operate::unserved(&mut *connection, store).await?,
        workers: operate::workers(&mut *connection, store).await?,
    })
}

/// Loads the counts and the oldest jobs of at most `most` queues. In a large store these statements are the slowest ones, so they run in
/// parallel if a connection is idle.
pub(in crate::dashboard) async fn busiest_and_oldest(app: &App, on: &mut PgConnection, most: u16) -> HandlerResult<(Busiest, Vec<Oldest>)> {
    let store = app.store;
    match app.try_begin_read().await {
        Some(mut beside) => Ok(tokio::try_join!(operate::busiest(on, store, most), operate::oldest_of(&mut *beside, store, most))?),
        None => Ok((operate::busiest(&mut *on, store, most).await?, operate::oldest_of(on, store, most).await?)),
    }
}

/// Returns the overview of the store: jobs by queue, type and state, the longest waits, the pauses and the workers.
#[utoipa::path(get, path = "/api/v1/overview", responses((status = 200, body = Overview), (status = "default", body = ErrorResponse)))]
pub(super) async fn overview(State(app): State<AppState>) -> HandlerResult<Json<Overview>> {
    Ok(Json(load_overview(&app).await?))
}
