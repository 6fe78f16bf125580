//! Schedules: sleeps until the next tick of any, and fires what is due. Every worker does so; `queue.fire_ticks` lets one of them be first.
//!
//! Declares this worker's own schedules, and sees to it that the newest are in force. What time it is, the database says; what ticks an expression
//! has, `queue_core` does. Where there are no schedules it never connects.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use queue_core::{
    JobId, Store,
    runner::{Due, Timing},
    schedule::{Declaration, Missed},
};
use sqlx::{FromRow, PgConnection};
use tokio::sync::watch;
use uuid::Uuid;

use crate::{
    error::complain,
    live::{Bell, Config, Identity, Link, after_ms, bounded},
};

/// What the loop works with.
pub(crate) struct Ticks {
    link: Link,
    config: Config,
    bell: Arc<Bell>,
    identity: watch::Receiver<Identity>,
    /// What this worker declares, by name.
    declares: Vec<(String, Declaration)>,
}

/// A schedule that has ticks.
#[derive(FromRow)]
struct Planned {
    name: String,
    definition: i64,
    cron: Option<String>,
    every_ms: Option<f64>,
    tz: String,
    missed: String,
    grace_ms: f64,
    since: DateTime<Utc>,
    next_at: Option<DateTime<Utc>>,
    skip_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
}

/// What came of a tick.
#[derive(FromRow)]
struct Fired {
    tick: Option<DateTime<Utc>>,
    outcome: String,
    job: Option<JobId>,
    why: Option<String>,
}

/// So many schedules are looked at at a time.
const MOST: i32 = 500;

/// Looks at least this often, should nobody say that a schedule has changed.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);

/// Before it asks again for a schedule that somebody has locked: twice as long each time, up to the longest.
const NAP: Duration = Duration::from_millis(20);
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// Whether any schedule has ticks: for whoever looks now and then.
pub(super) async fn any_schedule(connection: &mut PgConnection, store: Store) -> sqlx::Result<bool> {
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/any_schedule.sql")));
    bounded(statement.fetch_one(connection)).await
}

/// What is known from look to look.
struct Known {
    timings: HashMap<i64, Result<Timing, String>>,
    /// As whom this worker has declared its schedules.
    declared: Option<Uuid>,
    /// When it is to be looked again what is in force.
    elect: Instant,
    /// What was told already.
    told: HashSet<(String, String)>,
    nap: Duration,
}

/// What a look came to.
enum Look {
    /// No schedule has ticks.
    Nothing,
    /// Some were due, and others may be by now.
    Fired,
    /// What is due, others have.
    Held,
    /// The next tick is in this long.
    Next(Duration),
}

/// Fires what is due, for ever.
pub(crate) async fn fire_all(mut ticks: Ticks) {
    let mut known = Known { timings: HashMap::new(), declared: None, elect: Instant::now(), told: HashSet::new(), nap: NAP };
    if ticks.declares.is_empty() {
        ticks.bell.schedules().await;
    } else {
        let _ = ticks.identity.wait_for(Option::is_some).await;
    }
    loop {
        let looked = ticks.look(&mut known).await;
        let pause = match ticks.link.note(looked) {
            Ok(Look::Fired) => {
                known.nap = NAP;
                continue;
            }
            Ok(Look::Held) => {
                known.nap = (known.nap * 2).min(LONGEST_NAP);
                known.nap
            }
            Ok(Look::Next(wait)) => {
                known.nap = NAP;
                wait.min(LONGEST_SLEEP)
            }
            Ok(Look::Nothing) if ticks.declares.is_empty() => {
                let idle = ticks.link.another();
                std::mem::replace(&mut ticks.link, idle).close().await;
                ticks.bell.schedules().await;
                continue;
            }
            Ok(Look::Nothing) => LONGEST_SLEEP,
            Err(error) => {
                complain(&error, "cannot see to schedules; trying again");
                Duration::from_millis(250).mul_f64(1.0 + fastrand::f64())
            }
        };
        let pause = pause.min(known.elect.saturating_duration_since(Instant::now()).max(NAP));
        let _ = tokio::time::timeout(pause, ticks.bell.schedules()).await;
    }
}

impl Ticks {
    /// `declares` is what this worker declares, by name.
    pub(crate) fn new(
        link: Link,
        config: &Config,
        bell: &Arc<Bell>,
        identity: watch::Receiver<Identity>,
        declares: Vec<(String, Declaration)>,
    ) -> Self {
        Self { link, config: config.clone(), bell: Arc::clone(bell), identity, declares }
    }

    async fn look(&mut self, known: &mut Known) -> sqlx::Result<Look> {
        let us = *self.identity.borrow();
        if us.is_some() && known.declared != us || known.elect <= Instant::now() {
            self.declare(known, us).await?;
            known.elect = Instant::now() + (self.config.lease_ttl / 3).min(LONGEST_SLEEP).mul_f64(0.75 + 0.25 * fastrand::f64());
        }
        let statement = sqlx::query_as(self.config.store.sql(include_str!("../../sql/ticks.sql"))).bind(MOST);
        let planned: Vec<Planned> = bounded(statement.fetch_all(self.link.get().await?)).await?;
        let Some(last) = planned.last() else { return Ok(Look::Nothing) };
        let now = last.now;
        let due = planned.iter().take_while(|plan| plan.next_at.is_none_or(|tick| tick <= now)).count();
        known.timings.retain(|definition, _| planned.iter().any(|plan| plan.definition == *definition));
        if due == 0 {
            let wait = planned[0].next_at.map_or(0.0, |tick| (tick - now).as_seconds_f64() * 1000.0);
            return Ok(Look::Next(after_ms(wait)));
        }
        // Each worker begins with another, so that they share what is due at one moment.
        let (mut moved, mut failed, first) = (false, None, fastrand::usize(..due));
        for plan in (0..due).map(|place| &planned[(first + place) % due]) {
            match self.see_to(plan, known).await {
                Ok(was_first) => moved |= was_first,
                // The others are not to wait for this one.
                Err(error) => {
                    failed = Some(self.link.note(Err::<(), _>(error)));
                }
            }
        }
        match failed {
            Some(Err(error)) => Err(error),
            _ if moved => Ok(Look::Fired),
            _ => Ok(Look::Held),
        }
    }

    /// Does what is due for one schedule; returns whether nobody was there before.
    async fn see_to(&mut self, plan: &Planned, known: &mut Known) -> sqlx::Result<bool> {
        let timing = known.timings.entry(plan.definition).or_insert_with(|| plan.timing());
        let due = match (timing, plan.next_at) {
            (Err(why), _) => return self.fail(plan, why).await,
            (Ok(timing), None) => Due { ticks: Vec::new(), verb: "enqueue", next: timing.next(plan.since) },
            (Ok(timing), Some(tick)) => {
                let missed = Missed::from_sql(&plan.missed).unwrap_or_default();
                match timing.due(missed, Duration::from_secs_f64(plan.grace_ms.max(0.0) / 1000.0), tick, plan.skip_at, plan.now) {
                    Some(due) => due,
                    None => return Ok(false),
                }
            }
        };
        let fired = self.fire(plan, &due, None).await?;
        for fired in fired.iter().filter(|fired| fired.outcome == "failed") {
            let (name, tick, why) = (&plan.name, fired.tick.map(|tick| tick.to_rfc3339()), fired.why.as_deref());
            tracing::warn!(
                name,
                tick,
                why,
                "the job of a schedule cannot be enqueued; mend the schedule, or run it now once that is mended"
            );
        }
        if fired.iter().any(|fired| fired.job.is_some()) {
            self.bell.ring();
        }
        Ok(!fired.is_empty())
    }

    /// Without ticks from now on.
    async fn fail(&mut self, plan: &Planned, why: &str) -> sqlx::Result<bool> {
        let due = Due { ticks: Vec::new(), verb: "enqueue", next: None };
        let failed = !self.fire(plan, &due, Some(why)).await?.is_empty();
        if failed {
            tracing::error!(name = plan.name, why, "a schedule has no ticks until it is made anew: it cannot be read");
        }
        Ok(failed)
    }

    /// What came of it; nothing if others were first, or have it locked.
    async fn fire(&mut self, plan: &Planned, due: &Due, why: Option<&str>) -> sqlx::Result<Vec<Fired>> {
        let statement = sqlx::query_as(self.config.store.sql(include_str!("../../sql/fire.sql")))
            .bind(&plan.name)
            .bind(plan.definition)
            .bind(plan.next_at)
            .bind(&due.ticks)
            .bind(due.verb)
            .bind(due.next)
            .bind(why);
        bounded(statement.fetch_all(self.link.get().await?)).await
    }

    /// Says what this worker declares, if it has not, and sees to it that the newest are in force.
    async fn declare(&mut self, known: &mut Known, us: Identity) -> sqlx::Result<()> {
        let Self { link, config, declares, .. } = self;
        let mut said: Vec<(String, String)> = Vec::new();
        if let Some(worker) = us.filter(|us| known.declared != Some(*us) && !declares.is_empty()) {
            let column = |of: fn(&Declaration) -> &str| declares.iter().map(|(_, it)| of(it)).collect::<Vec<_>>();
            let statement = sqlx::query_as(config.store.sql(include_str!("../../sql/declare.sql")))
                .bind(worker)
                .bind(declares.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>())
                .bind(column(|it| &it.job_type))
                .bind(column(|it| &it.payload))
                .bind(column(|it| &it.options));
            said = bounded(statement.fetch_all(link.get().await?)).await?;
        }
        known.declared = us;
        let statement = sqlx::query_as(config.store.sql(include_str!("../../sql/elect.sql")));
        said.extend(bounded(statement.fetch_all(link.get().await?)).await?);
        for (name, became) in said {
            if !became.starts_with("refused") {
                tracing::info!(name, "a schedule that workers declare is {became}");
            } else if known.told.insert((name.clone(), became.clone())) {
                tracing::warn!(name, "a schedule that workers declare is {became}");
            }
        }
        Ok(())
    }
}

impl Planned {
    fn timing(&self) -> Result<Timing, String> {
        Timing::new(self.cron.as_deref(), self.every_ms.map(|ms| Duration::from_secs_f64(ms.max(0.0) / 1000.0)), &self.tz)
    }
}
