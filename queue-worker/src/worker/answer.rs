//! Health checks of a worker, and its figures: where they are asked for.

use std::{net::SocketAddr, sync::Arc};

use super::Worker;
#[cfg(feature = "metrics")]
use crate::figures::Figures;
use crate::{
    error::Error,
    health::{Asked, Health, listen},
    live::{Engine, Life, Vitals},
    tally::Tallies,
};

impl Worker {
    /// Answers health checks at this address, from the begin of [`Worker::run`] to its end: `GET /livez` and `GET /readyz`, each 200 or 503 with the
    /// reasons as JSON. `[::]` is every address of both families, and port 0 any that is free; the log says which. Whoever reaches the address may ask. Default: nowhere.
    ///
    /// While another process has the address, the worker runs, warns, and tries again every two seconds. An address that is not this machine's keeps
    /// it from running: [`Error::Health`].
    ///
    /// - *livez*: the worker's loops go on, whether or not the database is there. If it says no, start the process anew.
    /// - *readyz*: the worker is announced and beats, claims, and writes what came of its jobs, and nobody has asked it to end.
    /// - *metrics*, with the feature of that name: figures as Prometheus reads them. They take one more connection to the database.
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

    /// Begins to, if it is to; ends when what it returns is dropped.
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "figures are made of what is counted"))]
    pub(super) fn answer(
        &self,
        vitals: &Vitals,
        life: &Life,
        tallies: &Tallies,
    ) -> impl Future<Output = Result<Option<Engine>, Error>> + Send + use<> {
        let asked = self.health.map(|address| {
            let asked = Asked {
                health: Arc::new(Health::new(vitals, life, &self.config)),
                #[cfg(feature = "metrics")]
                figures: Figures::new(tallies, vitals, &self.pool, self.config.store),
            };
            (address, asked)
        });
        async move {
            match asked {
                Some((address, asked)) => listen(address, asked).await.map(Some),
                None => Ok(None),
            }
        }
    }
}
