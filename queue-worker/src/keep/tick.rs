//! Schedules: sleeps until the next tick of any, and fires what is due. Every worker does so; `queue.fire_ticks` lets one of them be first.
//!
//! What time it is, the database says; what ticks an expression has, `queue_core` does. What is due goes into few statements; what fails there is
//! put aside, and tried by itself after all others. Where there are no schedules this never connects.

mod aside;
mod declare;
mod plan;

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{Store, runner::Timing, schedule::Declaration};
use sqlx::PgConnection;
use tokio::sync::watch;

use self::{
    aside::Aside,
    declare::Declarations,
    plan::{Fired, Planned, Question, ask},
};
use crate::{
    error::complain,
    live::{Bell, Config, Identity, Link, bounded, jittered},
};

/// What the loop works with.
pub(crate) struct Ticks {
    link: Link,
    config: Config,
    bell: Arc<Bell>,
    identity: watch::Receiver<Identity>,
    declarations: Declarations,
    /// By definition.
    timings: HashMap<i64, Result<Timing, String>>,
    aside: Aside,
    /// When it was last told of each schedule that its ticks overlap.
    overlaps: HashMap<String, Instant>,
}

/// So many schedules are looked at at a time.
const MOST: usize = 500;

/// So many are fired in one statement: the disk is waited for once, and nobody waits long for the first.
const TOGETHER: usize = 50;

/// So many ms are waited for a lock that one of them needs. Then it is tried by itself.
const PATIENCE_TOGETHER: i32 = 1;

/// How often it is told that ticks of a schedule overlap.
const OVERLAPS: Duration = Duration::from_hours(1);

/// Looks at least this often, should nobody say that a schedule has changed.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);

/// Whether any schedule has ticks: for whoever looks now and then.
pub(super) async fn any_schedule(connection: &mut PgConnection, store: Store) -> sqlx::Result<bool> {
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/any_schedule.sql")));
    bounded(statement.fetch_one(connection)).await
}

/// What a look came to.
enum Look {
    /// No schedule has ticks.
    Nothing,
    /// Some were due, and others may be by now.
    Again,
    /// There is nothing to do for so long.
    Next(Duration),
}

/// Fires what is due, for ever.
pub(crate) async fn fire_all(mut ticks: Ticks) {
    let declares = !ticks.declarations.is_empty();
    if declares {
        let _ = ticks.identity.wait_for(Option::is_some).await;
    } else {
        ticks.bell.schedules().await;
    }
    loop {
        let looked = ticks.look().await;
        let pause = match ticks.link.note(looked) {
            Ok(Look::Again) => continue,
            Ok(Look::Next(wait)) => wait.min(LONGEST_SLEEP),
            Ok(Look::Nothing) if !declares => {
                let idle = ticks.link.another();
                std::mem::replace(&mut ticks.link, idle).close().await;
                ticks.bell.schedules().await;
                continue;
            }
            Ok(Look::Nothing) => LONGEST_SLEEP,
            Err(error) => {
                complain(&error, "cannot see to schedules; trying again");
                // Another server, which is behind, has other definitions under the same numbers.
                ticks.timings.clear();
                jittered(Duration::from_millis(250))
            }
        };
        let _ = tokio::time::timeout(pause.min(ticks.declarations.due_in()), ticks.bell.schedules()).await;
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
        let declarations = Declarations::new(declares, config);
        let (timings, aside, overlaps) = Default::default();
        let link = link.brief();
        Self { link, config: config.clone(), bell: Arc::clone(bell), identity, declarations, timings, aside, overlaps }
    }

    /// The same, begun anew over another link.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.link.another(), &self.config, &self.bell, self.identity.clone(), self.declarations.ours.clone())
    }

    /// Fires what is due, and last of all one of those that failed before. What is put aside hides nothing: behind a page of such there is another.
    async fn look(&mut self) -> sqlx::Result<Look> {
        let us = *self.identity.borrow();
        self.declarations.see_to(&mut self.link, us).await;
        if self.timings.len() > 4 * MOST {
            self.timings.clear();
        }
        let (mut last, mut wait, mut suspect) = (None::<Planned>, LONGEST_SLEEP, None);
        let mut fresh = Vec::new();
        loop {
            let page = Planned::page(&mut self.link, self.config.store, MOST, last.as_ref()).await?;
            let is_full = page.len() == MOST;
            let Some(end) = page.last().cloned() else { break };
            for plan in page {
                let rest = plan.due_in().or_else(|| self.aside.rest(&plan));
                match rest {
                    Some(rest) => wait = wait.min(rest),
                    None if self.aside.is_suspect(&plan) => suspect = suspect.or(Some(plan)),
                    None => fresh.push(plan),
                }
            }
            let all_are_due = end.due_in().is_none();
            last = Some(end);
            if !fresh.is_empty() || !is_full || !all_are_due {
                break;
            }
        }
        if last.is_none() {
            return Ok(Look::Nothing);
        }
        // Each worker begins with another, so that they share what is due at one moment.
        let first = fastrand::usize(..=fresh.len());
        fresh.rotate_left(first);
        for some in fresh.chunks(TOGETHER) {
            self.see_to(some, PATIENCE_TOGETHER).await?;
        }
        if let Some(plan) = &suspect {
            self.see_to(std::slice::from_ref(plan), self.aside.patience_ms(plan)).await?;
        }
        Ok(if fresh.is_empty() && suspect.is_none() { Look::Next(wait) } else { Look::Again })
    }

    /// Does what is due for these schedules. What fails by itself is put aside; an error is everybody's.
    async fn see_to(&mut self, plans: &[Planned], patience_ms: i32) -> sqlx::Result<()> {
        let mut questions = Vec::with_capacity(plans.len());
        for (plan, question) in plans.iter().zip(self.questions(plans.to_vec()).await) {
            if let Some(question) = question {
                questions.push(question);
            } else {
                // Its worker is of a newer release, and can.
                self.aside.leave(plan);
                tracing::warn!(name = plan.name, "a schedule that other workers declare cannot be read, and is left to them");
            }
        }
        if self.fire(&questions, patience_ms).await? || questions.len() < 2 {
            return Ok(());
        }
        for one in questions.chunks(1) {
            self.fire(one, patience_ms).await?;
        }
        Ok(())
    }

    /// On a thread of its own: a search for a tick may take milliseconds, and the other loops of the worker have this one.
    async fn questions(&mut self, plans: Vec<Planned>) -> Vec<Option<Question>> {
        let mut timings = std::mem::take(&mut self.timings);
        let search = move || {
            let mut ask = |plan: &Planned| {
                let search = || plan.question(timings.entry(plan.definition).or_insert_with(|| plan.timing()));
                // One that panics stops itself, and no other.
                catch_unwind(AssertUnwindSafe(search)).unwrap_or_else(|_| plan.question(&Err("a search for its ticks panicked".to_owned())))
            };
            let asked = plans.iter().map(&mut ask).collect();
            (asked, timings)
        };
        // It does not panic, and is not cancelled as long as somebody waits here.
        let (asked, timings) = tokio::task::spawn_blocking(search).await.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        self.timings = timings;
        asked
    }

    /// Returns whether there was an answer; one without an answer is put aside.
    async fn fire(&mut self, questions: &[Question], patience_ms: i32) -> sqlx::Result<bool> {
        if questions.is_empty() {
            return Ok(true);
        }
        // Without a connection nothing is the fault of any of them.
        self.link.get().await?;
        let asked = ask(&mut self.link, self.config.store, questions, patience_ms).await;
        match (self.link.note(asked), questions) {
            (Ok(fired), _) => {
                for (place, question) in (1..).zip(questions) {
                    self.note(question, fired.iter().filter(|fired| fired.place == place), patience_ms);
                }
                Ok(true)
            }
            (Err(error), _) if self.link.is_new() && !took_long(&error) => Err(error),
            (Err(error), [one]) => {
                self.failed(one, &queue_core::message(&error), patience_ms).await?;
                Ok(false)
            }
            (Err(_), _) => Ok(false),
        }
    }

    /// Its statement has failed as a whole, and left nothing behind: says so in another, so that it has no more than the grace after all.
    async fn failed(&mut self, question: &Question, why: &str, patience_ms: i32) -> sqlx::Result<()> {
        self.link.get().await?;
        let said = ask(&mut self.link, self.config.store, &[question.in_vain(why)], patience_ms).await;
        match self.link.note(said) {
            Ok(said) if !said.is_empty() => self.note(question, said.iter(), patience_ms),
            Err(error) if self.link.is_new() => return Err(error),
            _ => self.raised(&question.plan, why, patience_ms),
        }
        Ok(())
    }

    /// What came of the ticks of one schedule.
    fn note<'f>(&mut self, Question { plan, why, .. }: &Question, fired: impl Iterator<Item = &'f Fired>, patience_ms: i32) {
        let (mut any, mut failed) = (false, false);
        for Fired { tick, outcome, job, why, .. } in fired {
            any = true;
            let (tick, why) = (tick.map(|tick| tick.to_rfc3339()), why.as_deref());
            match outcome.as_str() {
                "raised" => return self.raised(plan, why.unwrap_or_default(), patience_ms),
                "failed" => {
                    failed = true;
                    tracing::warn!(
                        name = plan.name,
                        tick,
                        why,
                        "the job of a schedule cannot be enqueued; mend the schedule, or run it now once that is mended"
                    );
                }
                "overlapped" => self.overlapped(&plan.name, why),
                _ if job.is_some() => self.bell.ring(),
                _ => {}
            }
        }
        match why {
            // Others were first, or have it locked.
            _ if !any => {
                if self.aside.hold(plan) {
                    tracing::warn!(name = plan.name, "a schedule is late: an open transaction has had it locked for a minute; end that");
                }
            }
            Some(why) => tracing::error!(name = plan.name, why, "a schedule has no ticks until it is made anew: it cannot be read"),
            None => self.aside.forget(plan, failed),
        }
    }

    /// Tells of it once an hour.
    fn overlapped(&mut self, name: &str, why: Option<&str>) {
        self.overlaps.retain(|_, told| told.elapsed() < OVERLAPS);
        if !self.overlaps.contains_key(name) {
            self.overlaps.insert(name.to_owned(), Instant::now());
            tracing::warn!(
                name,
                why,
                "a schedule skips its ticks: a job of an earlier one is not over; cancel that, or mend it and run it now"
            );
        }
    }

    /// It failed by itself, and is put aside.
    fn raised(&mut self, plan: &Planned, why: &str, patience_ms: i32) {
        let wait = self.aside.suspect(plan, patience_ms > PATIENCE_TOGETHER);
        if !wait.is_zero() {
            let tick = plan.next_at.map(|tick| tick.to_rfc3339());
            tracing::warn!(
                name = plan.name,
                tick,
                why,
                again_in_s = wait.as_secs(),
                "the job of a schedule cannot be enqueued now; it is tried again until a grace after its first try"
            );
        }
    }
}

/// Whether a statement had an answer to wait for, and it did not come: another connection may have one for others.
fn took_long(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::TimedOut)
}
