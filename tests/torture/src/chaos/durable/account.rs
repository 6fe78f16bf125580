//! Compares the histories of durable jobs with the final rows of the database and with the injected faults.
//!
//! Performs no I/O, except for reading the rows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde::Serialize;

use super::{
    send::{SendOutcome, SentSignal},
    work::{EFFECTS, STRIDE, effect},
};
use crate::chaos::{
    check::{FaultLookup, FinalState, SLACK},
    history::{DurableAction, Entry, Line},
    inject::Fault,
    plan::Kind,
    run::finals,
    server::Database,
};

/// Rows of the database at the end of a run.
pub(super) struct FinalRows {
    pub(super) jobs: Vec<FinalState>,
    /// Journaled steps: job number, name, time of the journal entry, output.
    pub(super) steps: Vec<Step>,
    /// Entries of the table `ledger`, which the step transactions write.
    pub(super) effects: Vec<i64>,
    /// Payloads of the signals that no job has received.
    pub(super) left: Vec<i64>,
}

#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct Step {
    n: i64,
    name: String,
    at: i64,
    output: Option<String>,
}

impl FinalRows {
    pub(super) async fn read(database: &Database) -> Result<Self> {
        const STEPS: &str = "select (j.payload->>'n')::bigint as n, s.name, (extract(epoch from s.at) * 1000000)::bigint as at,
             s.output #>> '{}' as output
           from queue.step s join queue.job j on j.id = s.id";
        let pool = &database.pool;
        Ok(Self {
            jobs: finals(database).await?,
            steps: sqlx::query_as(STEPS).fetch_all(pool).await?,
            effects: sqlx::query_scalar("select n from ledger").fetch_all(pool).await?,
            left: sqlx::query_scalar("select (payload #>> '{}')::bigint from queue.signal").fetch_all(pool).await?,
        })
    }
}

/// Findings of a run with durable jobs. All counts except the first seven must be 0.
#[derive(Debug, Default, Serialize)]
pub(in crate::chaos) struct DurableFindings {
    #[serde(rename = "durable_completed")]
    completed: usize,
    /// Dead letters after three crashes.
    #[serde(rename = "durable_dead")]
    dead: usize,
    #[serde(rename = "durable_steps")]
    steps: usize,
    /// Repeated executions of external effects. A fault between the effect and its journal entry may cause a repetition.
    #[serde(rename = "durable_repeats")]
    repeats: usize,
    #[serde(rename = "signals_received")]
    received: usize,
    #[serde(rename = "signals_left")]
    unread: usize,
    #[serde(rename = "durable_joins")]
    joins: usize,
    /// Jobs that are missing, or neither completed nor dead after three crashes.
    #[serde(rename = "durable_unfinished")]
    unfinished: usize,
    /// Job numbers that exist twice, or that lie outside of the range of the run.
    #[serde(rename = "durable_doubled")]
    doubled: usize,
    /// Steps that were executed again after they had been journaled, without a fault that explains the repetition. Also journaled steps
    /// whose execution no process recorded.
    #[serde(rename = "steps_wrong")]
    steps_wrong: usize,
    /// Steps that were executed again without a fault that explains the repetition.
    #[serde(rename = "steps_unexplained")]
    unexplained: usize,
    /// Steps whose idempotency key changed between two executions.
    #[serde(rename = "step_keys_changed")]
    keys: usize,
    /// Missing or duplicate effects of step transactions.
    #[serde(rename = "step_effects_wrong")]
    effects: usize,
    #[serde(rename = "signals_lost")]
    lost: usize,
    /// Signals that exist twice or were never sent, and waits in which two attempts received different signals.
    #[serde(rename = "signals_wrong")]
    signals: usize,
    /// Parents that continued before all jobs they waited for were finished.
    #[serde(rename = "woken_early")]
    early: usize,
    /// Parents that waited again at the same point without a fault that explains the second wait.
    #[serde(rename = "woken_in_vain")]
    in_vain: usize,
    #[serde(rename = "durable_invariant_broken")]
    pub(super) broken: usize,
    /// Processes that exited without being killed.
    #[serde(rename = "durable_processes_ended")]
    pub(super) ended: usize,
    /// Whether jobs were unfinished at the end.
    #[serde(rename = "durable_left")]
    pub(super) left: bool,
    #[serde(skip)]
    pub(in crate::chaos) faults: Vec<Fault>,
    /// Descriptions of the first findings, for humans.
    #[serde(skip)]
    pub(in crate::chaos) notes: Vec<String>,
}

impl DurableFindings {
    /// Returns the number of violations.
    pub(in crate::chaos) fn wrong(&self) -> usize {
        self.unfinished
            + self.doubled
            + self.steps_wrong
            + self.unexplained
            + self.keys
            + self.effects
            + self.lost
            + self.signals
            + self.early
            + self.in_vain
            + self.broken
            + self.ended
            + usize::from(self.left)
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.notes.len() < 20 {
            self.notes.push(text());
        }
    }
}

/// Execution of a step's effect, with the process and the idempotency key.
struct StepEffect<'a> {
    at: u64,
    who: &'a str,
    key: &'a str,
}

/// Wait of a parent for other jobs.
struct ParentWait<'a> {
    at: u64,
    who: &'a str,
    attempt: u32,
    /// Time at which the parent continued, or `None` if the parent did not continue.
    until: Option<u64>,
}

pub(super) fn check(
    history: &[Entry],
    faults: &[Fault],
    rows: &FinalRows,
    sent: &[SentSignal],
    (parents, leaves): (u64, u64),
) -> DurableFindings {
    let (mut found, lookup) = (DurableFindings::default(), FaultLookup { faults });
    let whole = check_jobs(&mut found, rows, parents, leaves);
    check_steps(&mut found, &lookup, history, rows);
    check_effects(&mut found, rows, &whole);
    check_signals(&mut found, history, rows, sent);
    check_joins(&mut found, &lookup, history, rows, leaves);
    found
}

/// Checks that each job exists once and is finished. Returns the numbers of the completed parents.
fn check_jobs(found: &mut DurableFindings, rows: &FinalRows, parents: u64, leaves: u64) -> BTreeSet<u64> {
    let mut jobs: BTreeMap<u64, Vec<&FinalState>> = BTreeMap::new();
    for job in &rows.jobs {
        jobs.entry(job.n.cast_unsigned()).or_default().push(job);
    }
    let mut completed = BTreeSet::new();
    for n in (1..=parents).map(|nr| nr * STRIDE) {
        let is = |n: &u64, state: &str| jobs.get(n).is_some_and(|there| there[0].state == state);
        for number in n..=n + leaves {
            let dead = |n: &u64| jobs.get(n).is_some_and(|there| there[0].is_dead_of_crashes());
            // A parent that became a dead letter may have crashed before it spawned all of its jobs.
            let may_lack = number > n && !is(&n, "completed") && !jobs.contains_key(&number);
            match (is(&number, "completed"), dead(&number)) {
                (true, _) => found.completed += 1,
                (_, true) => found.dead += 1,
                _ if may_lack && dead(&n) => {}
                _ => {
                    found.unfinished += 1;
                    found.note(|| format!("unfinished: {number} is {:?}", jobs.get(&number)));
                }
            }
        }
        if is(&n, "completed") {
            completed.insert(n);
        }
    }
    for (n, there) in &jobs {
        if there.len() > 1 || n / STRIDE > parents || n % STRIDE > leaves {
            found.doubled += 1;
            found.note(|| format!("{n} exists {} times", there.len()));
        }
    }
    completed
}

/// Checks that each journaled step was executed, and was not executed again afterwards. Also checks that a fault explains each repeated
/// execution, and that a step always has the same idempotency key.
fn check_steps(found: &mut DurableFindings, lookup: &FaultLookup<'_>, history: &[Entry], rows: &FinalRows) {
    let mut works: BTreeMap<(u64, &str), Vec<StepEffect<'_>>> = BTreeMap::new();
    for Entry { at, who, line } in history {
        if let Line::DurableAction(n, _, DurableAction::Works(step, key)) = line {
            works.entry((*n, step)).or_default().push(StepEffect { at: *at, who, key });
        }
    }
    for ((n, step), done) in &works {
        if done.iter().any(|one| one.key != done[0].key) {
            found.keys += 1;
            found.note(|| format!("key changed: {step} of {n}"));
        }
        for pair in done.windows(2) {
            let (one, next) = (&pair[0], &pair[1]);
            found.repeats += 1;
            let hurt = lookup.on_process(one.who, one.at, next.at) || lookup.on_process(next.who, one.at, next.at);
            if !hurt && !lookup.on_server(one.at, next.at) {
                found.unexplained += 1;
                found.note(|| format!("unexplained: {step} of {n} at {} by {} and at {} by {}", one.at, one.who, next.at, next.who));
            }
        }
    }
    found.steps = rows.steps.len();
    for step in &rows.steps {
        let (n, journaled) = (step.n.cast_unsigned(), step.at.unsigned_abs());
        let Some(done) = works.get(&(n, step.name.as_str())) else {
            if ["one", "two", "three", "added"].contains(&step.name.as_str()) {
                found.steps_wrong += 1;
                found.note(|| format!("no process recorded {} of {n}", step.name));
            }
            continue;
        };
        // Repeated executions after a fault are not counted, because the process may not know yet that it has lost the job.
        let late = done.iter().filter(|one| one.at > journaled + SLACK);
        for one in late.filter(|one| !lookup.on_process(one.who, journaled, one.at) && !lookup.on_server(journaled, one.at)) {
            found.steps_wrong += 1;
            found.note(|| {
                format!("executed again: {} of {n} was journaled at {journaled}, and executed by {} at {}", step.name, one.who, one.at)
            });
        }
    }
}

/// Checks that no effect of a step transaction is duplicated, and that completed parents have all their effects.
fn check_effects(found: &mut DurableFindings, rows: &FinalRows, completed: &BTreeSet<u64>) {
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    for one in &rows.effects {
        *counts.entry(*one).or_default() += 1;
    }
    for (one, count) in counts.iter().filter(|(_, count)| **count > 1) {
        found.effects += 1;
        found.note(|| format!("effect {one} exists {count} times"));
    }
    for one in completed.iter().flat_map(|n| (0..EFFECTS).map(|which| effect(*n, which))).filter(|one| !counts.contains_key(one)) {
        found.effects += 1;
        found.note(|| format!("effect {one} is missing"));
    }
}

/// Checks that each acknowledged signal was received once or is still stored once. Also checks that all attempts of a job received the same
/// signals.
fn check_signals(found: &mut DurableFindings, history: &[Entry], rows: &FinalRows, sent: &[SentSignal]) {
    let is_received = |step: &&Step| step.name == "late" || step.name.starts_with("go/");
    let mut there: BTreeMap<u64, usize> = BTreeMap::new();
    for step in rows.steps.iter().filter(is_received) {
        let payload = step.output.as_deref().and_then(|output| output.parse().ok());
        let Some(payload) = payload else { continue };
        found.received += 1;
        *there.entry(payload).or_default() += 1;
    }
    found.unread = rows.left.len();
    for payload in &rows.left {
        *there.entry(payload.cast_unsigned()).or_default() += 1;
    }
    for one in sent.iter().filter(|one| one.outcome == SendOutcome::Acked && !there.contains_key(&one.payload)) {
        found.lost += 1;
        found.note(|| format!("lost: signal {}", one.payload));
    }
    let may_be: BTreeSet<u64> =
        sent.iter().filter(|one| matches!(one.outcome, SendOutcome::Acked | SendOutcome::Unknown)).map(|one| one.payload).collect();
    for (payload, count) in there.iter().filter(|(payload, count)| **count > 1 || !may_be.contains(payload)) {
        found.signals += 1;
        found.note(|| format!("signal {payload} exists {count} times"));
    }
    let mut received: BTreeMap<(u64, &str), Option<u64>> = BTreeMap::new();
    for entry in history {
        if let Line::DurableAction(n, _, DurableAction::Heard(step, come)) = &entry.line
            && received.insert((*n, step), *come).is_some_and(|before| before != *come)
        {
            found.signals += 1;
            found.note(|| format!("{step} of {n} was received differently by two attempts, the second time by {}: {come:?}", entry.who));
        }
    }
}

/// Checks that parents waited twice at the same point only after a fault. Also checks that they continued only after the jobs they waited
/// for had finished.
fn check_joins(found: &mut DurableFindings, lookup: &FaultLookup<'_>, history: &[Entry], rows: &FinalRows, leaves: u64) {
    let finished_at: BTreeMap<u64, u64> = rows.jobs.iter().map(|job| (job.n.cast_unsigned(), job.at.unsigned_abs())).collect();
    let mut waits: BTreeMap<(u64, &str), Vec<ParentWait<'_>>> = BTreeMap::new();
    for Entry { at, who, line } in history {
        match line {
            Line::DurableAction(n, attempt, DurableAction::Joins(name)) => {
                waits.entry((*n, name)).or_default().push(ParentWait { at: *at, who, attempt: *attempt, until: None });
            }
            Line::DurableAction(n, attempt, DurableAction::Joined(name)) => {
                let all = waits.entry((*n, name)).or_default();
                if let Some(wait) = all.iter_mut().rfind(|wait| wait.who == who && wait.attempt == *attempt) {
                    wait.until = Some(*at);
                }
            }
            _ => {}
        }
    }
    for ((n, name), all) in &waits {
        let waited_for = if *name == "child" { n + 1..n + 2 } else { n + 2..n + leaves + 1 };
        let all_finished_at = waited_for.filter_map(|leaf| finished_at.get(&leaf)).max().copied().unwrap_or(u64::MAX);
        for (wait, until) in all.iter().filter_map(|wait| Some((wait, wait.until?))) {
            found.joins += 1;
            // A server fault may lose the record that a job has finished. The job then finishes again at a later time, so the wait
            // does not count as early.
            if until + SLACK < all_finished_at && !lookup.on_server(until, all_finished_at) {
                found.early += 1;
                found.note(|| format!("woken early: {n} continued after {name} at {until} in {}, finished at {all_finished_at}", wait.who));
            }
        }
        let in_vain: Vec<&ParentWait<'_>> = all.iter().filter(|wait| wait.until.is_none()).collect();
        for pair in in_vain.windows(2) {
            let (one, next) = (pair[0], pair[1]);
            let cut = |fault: &Fault| fault.kind == Kind::Terminate && fault.until + 1_000_000 > one.at && fault.from < next.at + 1_000_000;
            // The interval extends beyond the start of the second wait, because a fault may hit the process of that wait before the parent
            // continues. The next attempt then waits again at the same point.
            let hurt = [one, next].iter().any(|wait| lookup.on_process(wait.who, wait.at.min(one.at), next.at + 1_000_000));
            if !hurt && !lookup.on_server(one.at, next.at + 1_000_000) && !lookup.faults.iter().any(cut) {
                found.in_vain += 1;
                found.note(|| {
                    format!("woken without need: {n} waited for {name} at {} in {} and at {} in {}", one.at, one.who, next.at, next.who)
                });
            }
        }
    }
}
