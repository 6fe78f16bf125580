//! Health checks and metrics of a worker over HTTP.

use std::{net::SocketAddr, sync::Arc};

use super::Worker;
#[cfg(feature = "metrics")]
use crate::figures::WorkerMetrics;
use crate::{
    error::Error,
    health::{Health, HealthState, listen},
    live::{Engine, LeaseDeadline, LoopHealth},
    tally::MetricsBuffer,
};

impl Worker {
    /// Serves health checks over HTTP at `address` while [`Worker::run`] runs. Default: off.
    ///
    /// `GET /livez` and `GET /readyz` return 200, or 503 with the reasons as JSON. The address `[::]` stands for all IPv4 and IPv6
    /// addresses. Port 0 selects a free port, which is logged. There is no authentication.
    ///
    /// While another process uses the address, the worker runs without health checks, logs warnings, and retries every two seconds. If the
    /// address does not belong to this host, the worker does not start and returns [`Error::Health`].
    ///
    /// - *livez*: the worker's loops make progress, whether or not the database is reachable. If the check fails, restart the process.
    /// - *readyz*: the worker is registered, sends heartbeats, claims jobs and writes verdicts, and is not shutting down.
    /// - *metrics*, with the feature `metrics`: metrics in the Prometheus text format. Metrics require an additional database connection.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
    /// use queue_worker::{Worker, shutdown_signal};
    ///
    /// Worker::new(pool).health((std::net::Ipv6Addr::UNSPECIFIED, 8080).into()).run(shutdown_signal()).await
    /// # }
    /// ```
    pub fn health(mut self, address: SocketAddr) -> Self {
        self.health = Some(address);
        self
    }

    /// Starts the listener if an address is set. Dropping the returned engine stops the listener.
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "only metrics need these arguments"))]
    pub(super) fn start_health_checks(
        &self,
        loop_health: &LoopHealth,
        lease_deadline: &LeaseDeadline,
        metrics: &MetricsBuffer,
    ) -> impl Future<Output = Result<Option<Engine>, Error>> + Send + use<> {
        let state = self.health.map(|address| {
            let state = HealthState {
                health: Arc::new(Health::new(loop_health, lease_deadline, &self.config)),
                #[cfg(feature = "metrics")]
                metrics: WorkerMetrics::new(metrics, loop_health, &self.pool, self.config.store),
            };
            (address, state)
        });
        async move {
            match state {
                Some((address, state)) => listen(address, state).await.map(Some),
                None => Ok(None),
            }
        }
    }
}
