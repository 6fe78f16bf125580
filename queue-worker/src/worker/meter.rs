//! Export of a worker's metrics to an OpenTelemetry meter.

use std::{sync::Arc, time::Duration};

use opentelemetry::metrics::Meter;
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{Worker, reporting::shared_state};
use crate::{
    error::Error,
    figures::{MeterExporter, WorkerMetrics},
    live::{Engine, Loop, LoopHealth},
    tally::MetricsBuffer,
};

/// Task that exports metrics on a dedicated thread.
pub(super) struct ExportTask {
    task: JoinHandle<()>,
    closing: CancellationToken,
    _engine: Engine,
}

/// Timeout for the last export.
const LAST_EXPORT: Duration = Duration::from_secs(1);

impl Worker {
    /// Exports the worker's metrics to `meter` every ten seconds while [`Worker::run`] runs. Default: no export.
    ///
    /// `docs/METRICS.md` lists the metrics. The meter's provider determines the reader and the destination. The export requires an
    /// additional database connection.
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

    /// Starts the export if a meter is set.
    pub(super) fn start_export(&self, loop_health: &LoopHealth, metrics: &MetricsBuffer) -> Result<Option<ExportTask>, Error> {
        let Some(meter) = self.meter.clone() else { return Ok(None) };
        let engine = Engine::start("queue metrics").map_err(|error| Error::Thread(error.to_string()))?.with_health(loop_health);
        let (figures, closing) = (WorkerMetrics::new(metrics, loop_health, &self.pool, self.config.store), CancellationToken::new());
        let exporter = shared_state(MeterExporter::new(figures, &meter, closing.clone()));
        let task = engine.supervise(Loop::Meter, move || {
            let exporter = Arc::clone(&exporter);
            async move { exporter.lock().await.run().await }
        });
        Ok(Some(ExportTask { task, closing, _engine: engine }))
    }
}

impl ExportTask {
    /// Exports one last time and ends the task. Must be called after the last event has been counted.
    pub(super) async fn end(self) {
        self.closing.cancel();
        let _ = timeout(LAST_EXPORT, self.task).await;
    }
}
