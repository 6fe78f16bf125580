//! Compares what durable jobs say they did with what the database says became of them, and with what was done to them.
//!
//! Pure, but for reading the rows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde::Serialize;

use super::{
    send::{Outcome, Sent},
    work::{EFFECTS, STRIDE, effect},
};
use crate::chaos::{
    check::{Blame, Final, SLACK},
    history::{Did, Entry, Line},
    inject::Fault,
    plan::Kind,
    run::finals,
    server::Database,
};

/// What the database says in the end.
pub(super) struct Rows {
    pub(super) jobs: Vec<Final>,
    /// Of each step: its job's number, its name, when it was journaled, what it gave.
    pub(super) steps: Vec<Step>,
    /// The ledger.
    pub(super) effects: Vec<i64>,
    /// The payloads of signals that nobody has received.
    pub(super) left: Vec<i64>,
}

#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct Step {
    n: i64,
    name: String,
    at: i64,
    output: Option<String>,
}

impl Rows {
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

/// What was found. All counts but the first seven must be 0.
#[derive(Debug, Default, Serialize)]
pub(in crate::chaos) struct Account {
    #[serde(rename = "durable_completed")]
    completed: usize,
    /// Dead letters of three crashes.
    #[serde(rename = "durable_dead")]
    dead: usize,
    #[serde(rename = "durable_steps")]
    steps: usize,
    /// Effects elsewhere that were done again, each under way when something was done to its process.
    #[serde(rename = "durable_repeats")]
    repeats: usize,
    #[serde(rename = "signals_received")]
    received: usize,
    #[serde(rename = "signals_left")]
    unread: usize,
    #[serde(rename = "durable_joins")]
    joins: usize,
    /// Not over, or not there.
    #[serde(rename = "durable_unfinished")]
    unfinished: usize,
    /// Spawned twice, or by nobody.
    #[serde(rename = "durable_doubled")]
    doubled: usize,
    /// A step that was done again after it had been journaled, or of which no process knows that it was done.
    #[serde(rename = "steps_wrong")]
    steps_wrong: usize,
    /// Done again though nothing was done to anybody.
    #[serde(rename = "steps_unexplained")]
    unexplained: usize,
    /// An effect under another key than before.
    #[serde(rename = "step_keys_changed")]
    keys: usize,
    /// Of transactions of steps: too many or too few.
    #[serde(rename = "step_effects_wrong")]
    effects: usize,
    #[serde(rename = "signals_lost")]
    lost: usize,
    /// Received twice, or by two attempts in two ways, or though it was not sent.
    #[serde(rename = "signals_wrong")]
    heard: usize,
    /// A parent that went on before all it waits for was over.
    #[serde(rename = "woken_early")]
    early: usize,
    /// A parent that waited again at the same place though nothing was done to it.
    #[serde(rename = "woken_in_vain")]
    in_vain: usize,
    #[serde(rename = "durable_invariant_broken")]
    pub(super) broken: usize,
    /// Processes that ended though nobody killed them.
    #[serde(rename = "durable_processes_ended")]
    pub(super) ended: usize,
    /// Some were not over in the end.
    #[serde(rename = "durable_left")]
    pub(super) left: bool,
    #[serde(skip)]
    pub(in crate::chaos) faults: Vec<Fault>,
    /// The first of each sort, for people.
    #[serde(skip)]
    pub(in crate::chaos) notes: Vec<String>,
}

impl Account {
    /// How many things must not be.
    pub(in crate::chaos) fn wrong(&self) -> usize {
        self.unfinished
            + self.doubled
            + self.steps_wrong
            + self.unexplained
            + self.keys
            + self.effects
            + self.lost
            + self.heard
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

/// An effect of a step, by whom and under which key.
struct Effect<'a> {
    at: u64,
    who: &'a str,
    key: &'a str,
}

/// A parent at a place where it waits.
struct Wait<'a> {
    at: u64,
    who: &'a str,
    attempt: u32,
    /// When it went on.
    until: Option<u64>,
}

pub(super) fn check(history: &[Entry], faults: &[Fault], rows: &Rows, sent: &[Sent], (parents, leaves): (u64, u64)) -> Account {
    let (mut found, blame) = (Account::default(), Blame { faults });
    let whole = whole(&mut found, rows, parents, leaves);
    steps(&mut found, &blame, history, rows);
    effects(&mut found, rows, &whole);
    signals(&mut found, history, rows, sent);
    joins(&mut found, &blame, history, rows, leaves);
    found
}

/// Whether each job is there once, and over; returns the parents that are completed.
fn whole(found: &mut Account, rows: &Rows, parents: u64, leaves: u64) -> BTreeSet<u64> {
    let mut jobs: BTreeMap<u64, Vec<&Final>> = BTreeMap::new();
    for job in &rows.jobs {
        jobs.entry(job.n.cast_unsigned()).or_default().push(job);
    }
    let mut completed = BTreeSet::new();
    for n in (1..=parents).map(|nr| nr * STRIDE) {
        let is = |n: &u64, state: &str| jobs.get(n).is_some_and(|there| there[0].state == state);
        for number in n..=n + leaves {
            let dead = |n: &u64| jobs.get(n).is_some_and(|there| there[0].is_dead_of_crashes());
            // A dead letter has not gone as far as to spawn all of its own.
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
            found.note(|| format!("{n} is there {} times", there.len()));
        }
    }
    completed
}

/// Whether each was done until it was journaled, and not after that.
fn steps(found: &mut Account, blame: &Blame<'_>, history: &[Entry], rows: &Rows) {
    let mut works: BTreeMap<(u64, &str), Vec<Effect<'_>>> = BTreeMap::new();
    for Entry { at, who, line } in history {
        if let Line::Did(n, _, Did::Works(step, key)) = line {
            works.entry((*n, step)).or_default().push(Effect { at: *at, who, key });
        }
    }
    for ((n, step), done) in &works {
        if done.iter().any(|one| one.key != done[0].key) {
            found.keys += 1;
            found.note(|| format!("another key: {step} of {n}"));
        }
        for pair in done.windows(2) {
            let (one, next) = (&pair[0], &pair[1]);
            found.repeats += 1;
            let hurt = blame.on_process(one.who, one.at, next.at) || blame.on_process(next.who, one.at, next.at);
            if !hurt && !blame.on_server(one.at, next.at) {
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
                found.note(|| format!("nobody did {} of {n}", step.name));
            }
            continue;
        };
        // Another process may not know that it has lost the job meanwhile.
        let late = done.iter().filter(|one| one.at > journaled + SLACK);
        for one in late.filter(|one| !blame.on_process(one.who, journaled, one.at) && !blame.on_server(journaled, one.at)) {
            found.steps_wrong += 1;
            found.note(|| {
                format!("done again: {} of {n} was journaled at {journaled}, and is done by {} at {}", step.name, one.who, one.at)
            });
        }
    }
}

/// Whether what steps wrote in their transactions is there once.
fn effects(found: &mut Account, rows: &Rows, completed: &BTreeSet<u64>) {
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    for one in &rows.effects {
        *counts.entry(*one).or_default() += 1;
    }
    for (one, count) in counts.iter().filter(|(_, count)| **count > 1) {
        found.effects += 1;
        found.note(|| format!("the effect {one} is there {count} times"));
    }
    for one in completed.iter().flat_map(|n| (0..EFFECTS).map(|which| effect(*n, which))).filter(|one| !counts.contains_key(one)) {
        found.effects += 1;
        found.note(|| format!("the effect {one} is missing"));
    }
}

/// Whether each signal whose sending was acknowledged was received, or is still there, once.
fn signals(found: &mut Account, history: &[Entry], rows: &Rows, sent: &[Sent]) {
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
    for one in sent.iter().filter(|one| one.outcome == Outcome::Acked && !there.contains_key(&one.payload)) {
        found.lost += 1;
        found.note(|| format!("lost: the signal {}", one.payload));
    }
    let may_be: BTreeSet<u64> =
        sent.iter().filter(|one| matches!(one.outcome, Outcome::Acked | Outcome::Unknown)).map(|one| one.payload).collect();
    for (payload, count) in there.iter().filter(|(payload, count)| **count > 1 || !may_be.contains(payload)) {
        found.heard += 1;
        found.note(|| format!("the signal {payload} is there {count} times"));
    }
    let mut heard: BTreeMap<(u64, &str), Option<u64>> = BTreeMap::new();
    for entry in history {
        if let Line::Did(n, _, Did::Heard(step, come)) = &entry.line
            && heard.insert((*n, step), *come).is_some_and(|before| before != *come)
        {
            found.heard += 1;
            found.note(|| format!("{step} of {n} was received in two ways, the second by {}: {come:?}", entry.who));
        }
    }
}

/// Whether each parent went on once what it waits for was over, and waited once.
fn joins(found: &mut Account, blame: &Blame<'_>, history: &[Entry], rows: &Rows, leaves: u64) {
    let over: BTreeMap<u64, u64> = rows.jobs.iter().map(|job| (job.n.cast_unsigned(), job.at.unsigned_abs())).collect();
    let mut waits: BTreeMap<(u64, &str), Vec<Wait<'_>>> = BTreeMap::new();
    for Entry { at, who, line } in history {
        match line {
            Line::Did(n, attempt, Did::Joins(name)) => {
                waits.entry((*n, name)).or_default().push(Wait { at: *at, who, attempt: *attempt, until: None });
            }
            Line::Did(n, attempt, Did::Joined(name)) => {
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
        let all_over = waited_for.filter_map(|leaf| over.get(&leaf)).max().copied().unwrap_or(u64::MAX);
        for (wait, until) in all.iter().filter_map(|wait| Some((wait, wait.until?))) {
            found.joins += 1;
            // What the server forgot of an end is ended anew.
            if until + SLACK < all_over && !blame.on_server(until, all_over) {
                found.early += 1;
                found.note(|| format!("woken early: {n} went on from {name} at {until} by {}, over at {all_over}", wait.who));
            }
        }
        let in_vain: Vec<&Wait<'_>> = all.iter().filter(|wait| wait.until.is_none()).collect();
        for pair in in_vain.windows(2) {
            let (one, next) = (pair[0], pair[1]);
            let cut = |fault: &Fault| fault.kind == Kind::Terminate && fault.until + 1_000_000 > one.at && fault.from < next.at + 1_000_000;
            // The second is hurt after it has come there, and comes again.
            let hurt = [one, next].iter().any(|wait| blame.on_process(wait.who, wait.at.min(one.at), next.at + 1_000_000));
            if !hurt && !blame.on_server(one.at, next.at + 1_000_000) && !blame.faults.iter().any(cut) {
                found.in_vain += 1;
                found.note(|| {
                    format!("woken in vain: {n} waited for {name} at {} by {} and at {} by {}", one.at, one.who, next.at, next.who)
                });
            }
        }
    }
}
