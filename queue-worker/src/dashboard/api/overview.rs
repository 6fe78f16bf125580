//! Route of a store's overview.

use std::sync::Arc;

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use queue_core::{
    Queue,
    operate::{Busiest, Count, Oldest, Pause, StateCount, Unserved, WorkerRecord},
};
use serde::Serialize;
use sqlx::PgConnection;
use utoipa::ToSchema;

use crate::dashboard::{
    app::{App, AppState},
    problem::{ErrorResponse, HandlerResult},
    trends::Trends,
};

/// Job counts, longest waits, pauses and workers of a store.
#[derive(Serialize, ToSchema)]
pub(in crate::dashboard) struct Overview {
    /// Database time when the overview was loaded.
    pub(in crate::dashboard) now: DateTime<Utc>,
    /// Number of jobs by queue, job type and state, for the 40 queue and type pairs with the most unfinished jobs. A count is a lower bound
    /// if its `partial` is `true`.
    pub(in crate::dashboard) counts: Vec<Count>,
    /// Total number of jobs by state.
    pub(in crate::dashboard) totals: Vec<StateCount>,
    /// Number of queue and type pairs that were counted but omitted from `counts`.
    pub(in crate::dashboard) more: i64,
    /// Oldest ready job of each of the 40 queues with the longest waits, longest wait first.
    pub(in crate::dashboard) oldest: Vec<Oldest>,
    /// Pauses in effect.
    pub(in crate::dashboard) paused: Vec<Pause>,
    /// Number of ready jobs that no live worker serves, by queue, job type and version.
    pub(in crate::dashboard) unserved: Vec<Unserved>,
    /// Registered workers.
    pub(in crate::dashboard) workers: Vec<WorkerRecord>,
}

/// Maximum number of queue and type pairs whose jobs are counted. Also the maximum number of queues whose oldest job is loaded.
const MAX_QUEUES: u16 = 40;

/// Loads the overview. Each statement reads a bounded number of rows.
pub(in crate::dashboard) async fn load_overview(app: &App) -> HandlerResult<Overview> {
    let (mut session, store) = (app.begin_read().await?, app.store);
    let (busiest, oldest) = busiest_and_oldest(app, &mut session, MAX_QUEUES).await?;
    let queue = Queue::on(&mut session).store(store);
    Ok(Overview {
        now: queue.now().await?,
        counts: busiest.counts,
        totals: busiest.totals,
        more: busiest.more,
        oldest,
        paused: queue.pauses().await?,
        unserved: queue.unserved().await?,
        workers: queue.workers().await?,
    })
}

/// Returns the store's trends, which are at most ten seconds old.
pub(in crate::dashboard) async fn load_trends(app: &App) -> HandlerResult<Arc<Trends>> {
    let load = async || {
        let mut session = app.begin_read().await?;
        Ok(Trends::load(&Queue::on(&mut session).store(app.store)).await?)
    };
    app.trends.get(load).await
}

/// Loads the counts of at most `most` queue and type pairs and the oldest ready job of each of at most `most` queues. In a large store,
/// these two statements are the slowest. They therefore run in parallel if a second connection is idle.
pub(in crate::dashboard) async fn busiest_and_oldest(app: &App, on: &mut PgConnection, most: u16) -> HandlerResult<(Busiest, Vec<Oldest>)> {
    let store = app.store;
    let queue = Queue::on(on).store(store);
    match app.try_begin_read().await {
        Some(mut beside) => {
            let beside = Queue::on(&mut beside).store(store);
            Ok(tokio::try_join!(queue.busiest(most), beside.oldest_of(most))?)
        }
        None => Ok((queue.busiest(most).await?, queue.oldest_of(most).await?)),
    }
}

/// Returns the store's job counts, longest waits, pauses and workers.
#[utoipa::path(get, path = "/api/v1/overview", responses((status = 200, body = Overview), (status = "default", body = ErrorResponse)))]
pub(super) async fn overview(State(app): State<AppState>) -> HandlerResult<Json<Overview>> {
    Ok(Json(load_overview(&app).await?))
}
