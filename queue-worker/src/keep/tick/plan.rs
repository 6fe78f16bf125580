//! A schedule as it is read, what is to be done about it, and what came of that.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use queue_core::{
    JobId, Store,
    runner::{Due, Timing},
    schedule::Missed,
};
use sqlx::FromRow;

use crate::live::{Link, after_ms, bounded};

/// A schedule that has ticks.
#[derive(Clone, FromRow)]
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) definition: i64,
    source: String,
    cron: Option<String>,
    every_ms: Option<f64>,
    tz: String,
    missed: String,
    grace_ms: f64,
    since: DateTime<Utc>,
    pub(super) next_at: Option<DateTime<Utc>>,
    skip_at: Option<DateTime<Utc>>,
    /// When that tick was first tried in vain, by anybody.
    pub(super) tried_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
}

/// What is to be done about one.
#[derive(Clone)]
pub(super) struct Question {
    pub(super) plan: Planned,
    due: Due,
    /// Why it has no ticks from now on.
    pub(super) why: Option<String>,
}

/// What came of a tick.
#[derive(FromRow)]
pub(super) struct Fired {
    /// Of which of those that were asked about, counted from 1.
    pub(super) place: i64,
    pub(super) tick: Option<DateTime<Utc>>,
    pub(super) outcome: String,
    pub(super) job: Option<JobId>,
    pub(super) why: Option<String>,
}

impl Planned {
    /// So many, in the order of their next ticks, after that one.
    pub(super) async fn page(link: &mut Link, store: Store, most: usize, after: Option<&Self>) -> sqlx::Result<Vec<Self>> {
        let statement = sqlx::query_as(store.sql(include_str!("../../../sql/ticks.sql")))
            .bind(i64::try_from(most).unwrap_or(i64::MAX))
            .bind(after.and_then(|after| after.next_at))
            .bind(after.map_or("", |after| after.name.as_str()));
        bounded(statement.fetch_all(link.get().await?)).await
    }

    pub(super) fn timing(&self) -> Result<Timing, String> {
        Timing::new(self.cron.as_deref(), self.every_ms.map(|ms| Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default()), &self.tz)
    }

    /// How long until its next tick; none if that is due, or to be computed.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let tick = self.next_at.filter(|tick| *tick > self.now)?;
        Some(after_ms((tick - self.now).as_seconds_f64() * 1000.0))
    }

    /// How late a tick may be.
    pub(super) fn grace(&self) -> Duration {
        Duration::from_secs_f64((self.grace_ms.max(0.0) / 1000.0).min(1e9))
    }

    /// How much of the grace after its first try was left when it was read.
    pub(super) fn grace_left(&self) -> Duration {
        let tried_for = self.tried_at.and_then(|tried_at| (self.now - tried_at).to_std().ok()).unwrap_or_default();
        self.grace().saturating_sub(tried_for)
    }

    /// What is to be done about it. None if it is left to those who can read it: of what workers declare, no other release may say that it is
    /// wrong.
    pub(super) fn question(&self, timing: &Result<Timing, String>) -> Option<Question> {
        let nothing = |next| Due { ticks: Vec::new(), verb: "enqueue", next };
        let (due, why) = match (timing, self.next_at) {
            (Err(_), _) if self.source == "static" => return None,
            (Err(why), _) => (nothing(None), Some(why.clone())),
            (Ok(timing), None) => (nothing(timing.next(self.since)), None),
            (Ok(timing), Some(tick)) => {
                let missed = Missed::from_sql(&self.missed).unwrap_or_default();
                (timing.due(missed, self.grace(), tick, self.skip_at, self.now)?, None)
            }
        };
        Some(Question { plan: self.clone(), due, why })
    }
}

impl Question {
    /// That it was tried in vain, in a statement that left nothing behind.
    pub(super) fn in_vain(&self, why: &str) -> Self {
        let mut question = self.clone();
        (question.due.verb, question.why) = ("fail", Some(why.to_owned()));
        question
    }
}

/// Does what is due for each, in one commit: what came of it. Nothing of those for which others were first, or which they have locked.
pub(super) async fn ask(link: &mut Link, store: Store, questions: &[Question], patience_ms: i32) -> sqlx::Result<Vec<Fired>> {
    let ticks = |due: &Due| {
        let ticks: Vec<String> = due.ticks.iter().map(|tick| tick.to_rfc3339_opts(SecondsFormat::Micros, true)).collect();
        format!("{{{}}}", ticks.join(","))
    };
    let statement = sqlx::query_as(store.sql(include_str!("../../../sql/fire.sql")))
        .bind(questions.iter().map(|it| it.plan.name.as_str()).collect::<Vec<_>>())
        .bind(questions.iter().map(|it| it.plan.definition).collect::<Vec<_>>())
        .bind(questions.iter().map(|it| it.plan.next_at).collect::<Vec<_>>())
        .bind(questions.iter().map(|it| ticks(&it.due)).collect::<Vec<_>>())
        .bind(questions.iter().map(|it| it.due.verb).collect::<Vec<_>>())
        .bind(questions.iter().map(|it| it.due.next).collect::<Vec<_>>())
        .bind(questions.iter().map(|it| it.why.as_deref()).collect::<Vec<_>>())
        .bind(patience_ms);
    bounded(statement.fetch_all(link.get().await?)).await
}
