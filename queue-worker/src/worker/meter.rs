//! Figures of a worker for a meter of OpenTelemetry.

use std::{sync::Arc, time::Duration};

use opentelemetry::metrics::Meter;
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{Worker, tellers::kept};
use crate::{
    error::Error,
    figures::{Feed, Figures},
    live::{Engine, Loop, Vitals},
    tally::Tallies,
};

/// Tells the meter, on a thread of its own.
pub(super) struct Feeding {
    task: JoinHandle<()>,
    closing: CancellationToken,
    _engine: Engine,
}

/// The last word has so long.
const LAST: Duration = Duration::from_secs(1);

impl Worker {
    /// Tells this meter the worker's figures, from the begin of [`Worker::run`] to its end: what docs/METRICS.md lists, every ten seconds. Which reader
    /// there is, and where it sends them, is said where the meter's provider is made. It takes one more connection to the database. Default: none.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
    /// use queue_worker::{Worker, shutdown_signal};
    ///
    /// let meter = opentelemetry::global::meter("queue-worker"); // of the provider that the program has set
    /// Worker::new(pool).meter(meter).run(shutdown_signal()).await
    /// # }
    /// ```
    pub fn meter(mut self, meter: Meter) -> Self {
        self.meter = Some(meter);
        self
    }

    /// Begins to, if there is one.
    pub(super) fn tell_meter(&self, vitals: &Vitals, tallies: &Tallies) -> Result<Option<Feeding>, Error> {
        let Some(meter) = self.meter.clone() else { return Ok(None) };
        let engine = Engine::start("queue metrics").map_err(|error| Error::Thread(error.to_string()))?.telling(vitals);
        let (figures, closing) = (Figures::new(tallies, vitals, &self.pool, self.config.store), CancellationToken::new());
        let feed = kept(Feed::new(figures, &meter, closing.clone()));
        let task = engine.supervise(Loop::Meter, move || {
            let feed = Arc::clone(&feed);
            async move { feed.lock().await.run().await }
        });
        Ok(Some(Feeding { task, closing, _engine: engine }))
    }
}

impl Feeding {
    /// Once nothing is counted any more.
    pub(super) async fn end(self) {
        self.closing.cancel();
        let _ = timeout(LAST, self.task).await;
    }
}
