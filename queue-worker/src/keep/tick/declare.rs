//! What this worker declares, and which definitions are in force. Whatever fails here is told of and tried again; no tick waits for it.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use queue_core::{Store, schedule::Declaration};
use uuid::Uuid;

use crate::{
    error::complain,
    live::{Config, Identity, Link, bounded},
};

pub(super) struct Declarations {
    store: Store,
    /// By name.
    pub(super) ours: Vec<(String, Declaration)>,
    /// As whom this worker has declared them, and as whom it tried to.
    declared: Identity,
    tried: Identity,
    /// When it is to be looked again what is in force, and how soon if that failed.
    due: Instant,
    period: Duration,
    retry: Duration,
    /// What was told already.
    told: HashSet<(String, String)>,
}

/// It is looked at least this often what is in force.
const USUAL: Duration = Duration::from_secs(10);

/// Before what failed is tried again: twice as long each time, up to what is usual.
const RETRY: Duration = Duration::from_millis(500);

/// What became of a name.
type Became = (String, String);

impl Declarations {
    pub(super) fn new(ours: Vec<(String, Declaration)>, config: &Config) -> Self {
        let period = (config.lease_ttl / 3).min(USUAL);
        let (store, due) = (config.store, Instant::now());
        Self { store, ours, declared: None, tried: None, due, period, retry: RETRY, told: HashSet::new() }
    }

    /// Whether this worker declares nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.ours.is_empty()
    }

    pub(super) fn due_in(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Says what this worker declares, if it has not, and sees to it that the newest are in force; nothing if it is not yet time for that.
    pub(super) async fn see_to(&mut self, link: &mut Link, us: Identity) {
        if !self.due_in().is_zero() && (us.is_none() || us == self.tried) {
            return;
        }
        self.tried = us;
        let mut is_done = true;
        if let Some(worker) = us.filter(|us| self.declared != Some(*us) && !self.ours.is_empty()) {
            let said = self.declare(link, worker).await;
            match link.note(said) {
                Ok(said) => {
                    is_done = !said.iter().any(|(_, became)| became.starts_with("held up"));
                    self.declared = us.filter(|_| is_done);
                    self.tell(said);
                }
                Err(error) => {
                    is_done = false;
                    complain(&error, "cannot declare the schedules of this worker; trying again");
                }
            }
        }
        let elect = async |link: &mut Link| {
            let statement = sqlx::query_as(self.store.sql(include_str!("../../../sql/elect.sql")));
            bounded(statement.fetch_all(link.get().await?)).await
        };
        let said = elect(link).await;
        match link.note(said) {
            Ok(said) => self.tell(said),
            Err(error) => {
                is_done = false;
                complain(&error, "cannot see which schedules of workers are in force; trying again");
            }
        }
        let usual = self.period.mul_f64(0.75 + 0.25 * fastrand::f64());
        self.due = Instant::now() + if is_done { usual } else { self.retry };
        self.retry = if is_done { RETRY } else { (self.retry * 2).min(USUAL) };
    }

    async fn declare(&self, link: &mut Link, worker: Uuid) -> sqlx::Result<Vec<Became>> {
        let column = |of: fn(&Declaration) -> &str| self.ours.iter().map(|(_, it)| of(it)).collect::<Vec<_>>();
        let statement = sqlx::query_as(self.store.sql(include_str!("../../../sql/declare.sql")))
            .bind(worker)
            .bind(self.ours.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>())
            .bind(column(|it| &it.job_type))
            .bind(column(|it| &it.payload))
            .bind(column(|it| &it.options));
        bounded(statement.fetch_all(link.get().await?)).await
    }

    fn tell(&mut self, said: Vec<Became>) {
        for (name, became) in said {
            if !became.starts_with("refused") && !became.starts_with("held up") {
                tracing::info!(name, "a schedule that workers declare is {became}");
            } else if self.told.insert((name.clone(), became.clone())) {
                tracing::warn!(name, "a schedule that workers declare is {became}");
            }
        }
    }
}
