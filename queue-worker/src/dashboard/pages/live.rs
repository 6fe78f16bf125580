//! The stream of what changes on a page: its live part, written anew whenever it was looked at.

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
    job::see,
    overview::{Figures, FiguresPart},
};
use crate::dashboard::{
    api::{Asked, gather, job_id},
    app::{App, Shared},
    live::{Hub, Topic},
    problem::{Answer, Problem},
    show,
};

/// What is watched: a job, or else the overview.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    job: Option<String>,
}

/// Stands for the place where the router is nested. No text on a page has it: characters that act are made harmless.
const BASE: char = '\u{1a}';

/// A proxy ends what is silent for long.
const SIGN: Duration = Duration::from_secs(15);

pub(super) async fn stream(
    State(app): State<Shared>,
    frame: Frame,
    Asked(wanted): Asked<Wanted>,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let topic = wanted.job.as_deref().map(job_id).transpose()?.map_or(Topic::Overview, Topic::Job);
    let (looks, anywhere) = (app.clone(), Frame { base: BASE.to_string(), ..frame.clone() });
    let watching = Hub::watch(&app.hub, topic, move || {
        let (app, frame) = (looks.clone(), anywhere.clone());
        async move { look(&app, topic, frame).await.ok() }
    })?;
    let base = show::escape(&frame.base);
    let events = stream::unfold((watching, base), async |(mut watching, base)| {
        let html = watching.next().await?.replace(BASE, &base).replace('\r', " ");
        Some((Ok(Event::default().event("part").data(html)), (watching, base)))
    });
    // Of a store that is taken off nothing more is told, also if others put it on again.
    Ok(Sse::new(events.take_until(app.gone())).keep_alive(KeepAlive::new().interval(SIGN)))
}

/// What is looked at once for all, written so that it is right wherever the router is nested.
async fn look(app: &App, topic: Topic, frame: Frame) -> Answer<String> {
    let written = match topic {
        Topic::Overview => {
            let overview = gather(app).await?;
            FiguresPart { frame, figures: Figures::new(&overview) }.render().ok()
        }
        Topic::Job(id) => see(app, id).await?.live(&frame),
    };
    written.ok_or_else(|| Problem::busy("this cannot be written"))
}
