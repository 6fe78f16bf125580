//! A store in figures.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use queue_core::operate::{self, Busiest, Count, Oldest, Pause, StateCount, Unserved, WorkerRecord};
use serde::Serialize;
use sqlx::PgConnection;
use utoipa::ToSchema;

use crate::dashboard::{
    app::{App, Shared},
    problem::{Answer, Wrong},
};

/// A store in figures.
#[derive(Serialize, ToSchema)]
pub(in crate::dashboard) struct Overview {
    /// When this was read, by the database's clock.
    pub(in crate::dashboard) now: DateTime<Utc>,
    /// How many jobs there are, by queue, type and state, of the 40 queues and types that have most; where `partial` is set, at least so many.
    pub(in crate::dashboard) counts: Vec<Count>,
    /// How many there are in all, by state.
    pub(in crate::dashboard) totals: Vec<StateCount>,
    /// So many more queues and types were seen.
    pub(in crate::dashboard) more: i64,
    /// The first ready job of the 40 queues that wait longest, the longest wait first.
    pub(in crate::dashboard) oldest: Vec<Oldest>,
    /// What workers begin nothing of.
    pub(in crate::dashboard) paused: Vec<Pause>,
    /// Ready jobs that no living worker serves.
    pub(in crate::dashboard) unserved: Vec<Unserved>,
    /// The workers.
    pub(in crate::dashboard) workers: Vec<WorkerRecord>,
}

/// So many queues and types, those that have most jobs, and so many queues that wait longest.
const SHOWN: u16 = 40;

/// All of it, in a handful of bounded statements.
pub(in crate::dashboard) async fn gather(app: &App) -> Answer<Overview> {
    let (mut session, store) = (app.look().await?, app.store);
    let (busiest, oldest) = busiest_and_oldest(app, &mut session, SHOWN).await?;
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

/// Of so many queues. These take longest in a large store, so the one is asked beside the other, if a connection is free.
pub(in crate::dashboard) async fn busiest_and_oldest(app: &App, on: &mut PgConnection, most: u16) -> Answer<(Busiest, Vec<Oldest>)> {
    let store = app.store;
    match app.look_beside().await {
        Some(mut beside) => Ok(tokio::try_join!(operate::busiest(on, store, most), operate::oldest_of(&mut *beside, store, most))?),
        None => Ok((operate::busiest(&mut *on, store, most).await?, operate::oldest_of(on, store, most).await?)),
    }
}

/// The store in figures: jobs by queue, type and state; who waits longest; what is paused; who works.
#[utoipa::path(get, path = "/api/v1/overview", responses((status = 200, body = Overview), (status = "default", body = Wrong)))]
pub(super) async fn overview(State(app): State<Shared>) -> Answer<Json<Overview>> {
    Ok(Json(gather(&app).await?))
}
