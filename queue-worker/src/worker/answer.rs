//! Health checks of a worker: where they are asked for.

use std::net::SocketAddr;

use super::Worker;
use crate::{
    error::Error,
    health::{Health, listen},
    live::{Engine, Life, Vitals},
};

impl Worker {
    /// Answers health checks at this address, from the begin of [`Worker::run`] to its end: `GET /livez` and `GET /readyz`, each 200 or 503 with the
    /// reasons as JSON. Port 0 is any that is free; the log says which. Whoever reaches the address may ask. Default: nowhere.
    ///
    /// An address that is taken keeps the worker from running: [`Error::Health`]. A supervisor that asks there would take another process for it.
    ///
    /// - *livez*: the worker's loops go on, whether or not the database is there. If it says no, start the process anew.
    /// - *readyz*: the worker is announced and beats, claims, and writes what came of its jobs, and nobody has asked it to end.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
    /// use queue_worker::{Worker, shutdown_signal};
    ///
    /// Worker::new(pool).health(([0, 0, 0, 0], 8080).into()).run(shutdown_signal()).await
    /// # }
    /// ```
    pub fn health(mut self, address: SocketAddr) -> Self {
        self.health = Some(address);
        self
    }

    /// Begins to, if it is to; ends when what it returns is dropped.
    pub(super) fn answer(&self, vitals: &Vitals, life: &Life) -> impl Future<Output = Result<Option<Engine>, Error>> + Send + use<> {
        let asked = self.health.map(|address| (address, Health::new(vitals, life, &self.config)));
        async move {
            match asked {
                Some((address, health)) => listen(address, health).await.map(Some),
                None => Ok(None),
            }
        }
    }
}
