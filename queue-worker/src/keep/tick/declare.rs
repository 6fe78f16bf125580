//! Declares this worker's schedules and puts the declarations of live workers in force. Failures are logged and retried. No tick waits
//! for a declaration.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use queue_core::{Store, schedule::Declaration};
use uuid::Uuid;

use crate::{
    error::warn_throttled,
    live::{Config, Identity, StoreConnection, bounded},
};

pub(super) struct Declarations {
    store: Store,
    /// Names and declarations of this worker's schedules.
    pub(super) own: Vec<(String, Declaration)>,
    /// Worker identity under which all of this worker's schedules were last declared. `None` before the first declaration, and after an
    /// incomplete declaration.
    declared_as: Identity,
    /// Worker identity at the last refresh, even if the refresh failed.
    tried_as: Identity,
    /// Time of the next refresh.
    refresh_at: Instant,
    /// Interval between refreshes.
    period: Duration,
    /// Delay after a failed refresh.
    retry: Duration,
    /// Schedule names and outcomes whose warnings have already been logged.
    warned: HashSet<(String, String)>,
}

/// Maximum interval between refreshes of the declarations.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// Delay after the first failed refresh. The delay doubles with each further failure, up to [`MAX_INTERVAL`].
const MIN_RETRY: Duration = Duration::from_millis(500);

/// Name of a declared schedule and the outcome of its declaration.
type DeclarationOutcome = (String, String);

impl Declarations {
    pub(super) fn new(own: Vec<(String, Declaration)>, config: &Config) -> Self {
        let period = (config.lease_ttl / 3).min(MAX_INTERVAL);
        let (store, refresh_at) = (config.store, Instant::now());
        Self { store, own, declared_as: None, tried_as: None, refresh_at, period, retry: MIN_RETRY, warned: HashSet::new() }
    }

    /// Returns whether this worker declares no schedules.
    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    pub(super) fn due_in(&self) -> Duration {
        self.refresh_at.saturating_duration_since(Instant::now())
    }

    /// Declares this worker's schedules under its current identity and puts the declarations of live workers in force. Does nothing
    /// before the next refresh is due, unless the identity is new.
    pub(super) async fn refresh(&mut self, link: &mut StoreConnection, own: Identity) {
        if !self.due_in().is_zero() && (own.is_none() || own == self.tried_as) {
            return;
        }
        self.tried_as = own;
        let mut is_done = true;
        if let Some(worker) = own.filter(|own| self.declared_as != Some(*own) && !self.own.is_empty()) {
            let result = self.declare(link, worker).await;
            match link.note(result) {
                Ok(outcomes) => {
                    is_done = !outcomes.iter().any(|(_, outcome)| outcome.starts_with("held up"));
                    self.declared_as = own.filter(|_| is_done);
                    self.log_outcomes(outcomes);
                }
                Err(error) => {
                    is_done = false;
                    warn_throttled(&error, "cannot declare the schedules of this worker; retrying");
                }
            }
        }
        let elect = async |link: &mut StoreConnection| {
            let statement = sqlx::query_as(self.store.sql(include_str!("../../../sql/elect.sql")));
            bounded(statement.fetch_all(link.get().await?)).await
        };
        let result = elect(link).await;
        match link.note(result) {
            Ok(outcomes) => self.log_outcomes(outcomes),
            Err(error) => {
                is_done = false;
                warn_throttled(&error, "cannot elect the schedules in force; retrying");
            }
        }
        let usual = self.period.mul_f64(0.75 + 0.25 * fastrand::f64());
        self.refresh_at = Instant::now() + if is_done { usual } else { self.retry };
        self.retry = if is_done { MIN_RETRY } else { (self.retry * 2).min(MAX_INTERVAL) };
    }

    async fn declare(&self, link: &mut StoreConnection, worker: Uuid) -> sqlx::Result<Vec<DeclarationOutcome>> {
        let column = |of: fn(&Declaration) -> &str| self.own.iter().map(|(_, it)| of(it)).collect::<Vec<_>>();
        let statement = sqlx::query_as(self.store.sql(include_str!("../../../sql/declare.sql")))
            .bind(worker)
            .bind(self.own.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>())
            .bind(column(|it| &it.job_type))
            .bind(column(|it| &it.payload))
            .bind(column(|it| &it.options));
        bounded(statement.fetch_all(link.get().await?)).await
    }

    fn log_outcomes(&mut self, outcomes: Vec<DeclarationOutcome>) {
        for (name, outcome) in outcomes {
            if !outcome.starts_with("refused") && !outcome.starts_with("held up") {
                tracing::info!(name, "a declared schedule is {outcome}");
            } else if self.warned.insert((name.clone(), outcome.clone())) {
                tracing::warn!(name, "a declared schedule is {outcome}");
            }
        }
    }
}
