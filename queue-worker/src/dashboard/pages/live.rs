//! Server-sent events that update a page. Each event contains the live part of the page, rendered after a poll.

use std::{convert::Infallible, time::Duration};

use askama::Template;
use axum::{
    extract::State,
    response::{
        Sse,
        sse::{Event, KeepAlive},
    },
};
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;

use super::{
    frame::Frame,
    job::load_page_data,
    overview::{OverviewFigures, OverviewLive},
};
use crate::dashboard::{
    api::{QueryParams, job_id, load_overview, load_trends},
    app::{App, AppState},
    display,
    live_hub::{LiveHub, LiveTopic},
    problem::{HandlerResult, Problem},
};

/// Query parameters that select the page to watch. Default: the overview page.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct LiveQuery {
    job: Option<String>,
}

/// Placeholder for the base path of links. The character occurs nowhere else in a page, because control characters are escaped.
const BASE_PLACEHOLDER: char = '\u{1a}';

/// Keep-alive interval of event streams. Without keep-alive messages, proxies would close idle connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) async fn stream(
    State(app): State<AppState>,
    frame: Frame,
    QueryParams(query): QueryParams<LiveQuery>,
) -> HandlerResult<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let topic = query.job.as_deref().map(job_id).transpose()?.map_or(LiveTopic::Overview, LiveTopic::Job);
    let (polled, anywhere) = (app.clone(), Frame { base: BASE_PLACEHOLDER.to_string(), ..frame.clone() });
    let watching = LiveHub::watch(&app.hub, topic, move || {
        let (app, frame) = (polled.clone(), anywhere.clone());
        async move { render_live(&app, topic, frame).await.ok() }
    })?;
    let base = display::escape(&frame.base);
    let events = stream::unfold((watching, base), async |(mut watching, base)| {
        let html = watching.next().await?.replace(BASE_PLACEHOLDER, &base).replace('\r', " ");
        Some((Ok(Event::default().event("part").data(html)), (watching, base)))
    });
    // The stream ends when the store is removed from the roster, even if a store with the same name is added again.
    Ok(Sse::new(events.take_until(app.removed())).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// Renders the live part of a page once for all viewers. `frame` has a placeholder as its base path, because viewers may use different
/// base paths.
async fn render_live(app: &App, topic: LiveTopic, frame: Frame) -> HandlerResult<String> {
    let written = match topic {
        LiveTopic::Overview => {
            let (overview, trends) = (load_overview(app).await?, load_trends(app).await);
            OverviewLive { frame, figures: OverviewFigures::new(&overview, &trends) }.render().ok()
        }
        LiveTopic::Job(id) => load_page_data(app, id).await?.live(&frame),
    };
    written.ok_or_else(|| Problem::unavailable("cannot render this page"))
}
