//! Compares the histories of the processes with the final rows of the database and with the injected faults.
//!
//! Performs no I/O: takes histories, faults and rows, and returns findings.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::{
    history::{Entry, Line},
    inject::Fault,
    limited::is_limited,
    plan::Kind,
    produce::is_batched,
    work::POISON,
};

/// Final state of one job in the database.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct FinalState {
    pub(super) n: i64,
    pub(super) state: String,
    pub(super) attempts: i32,
    pub(super) output: Option<String>,
    pub(super) error: Option<String>,
    /// Time at which the job entered the state, in microseconds since 1970.
    pub(super) at: i64,
    /// Start deadline in microseconds since 1970.
    pub(super) expires_at: Option<i64>,
    /// Whether the job is a poison job, which fails in every batch.
    pub(super) poison: bool,
}

/// Findings of a chaos run.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Findings {
    pub(super) attempted: usize,
    pub(super) acknowledged: usize,
    pub(super) completed: usize,
    /// Number of dead letters other than poison jobs. Expected only after three crashes.
    pub(super) dead: usize,
    /// Number of poison jobs that became dead letters, as expected.
    pub(super) poison: usize,
    /// Number of expired jobs, including those in `expired_wrongly`.
    pub(super) expired: usize,
    /// Number of acknowledged jobs that are not completed, not expired, and not dead for an expected reason.
    pub(super) lost: usize,
    /// Number of jobs that are stored twice, stored although they were rolled back or never enqueued, or not stored although they ran.
    pub(super) unexpected: usize,
    pub(super) executions: usize,
    /// Number of executions that repeated a job although its preceding execution has no recorded failure.
    pub(super) duplicate_executions: usize,
    /// Number of duplicate executions that no fault explains. They began although the lease of the preceding execution was still valid.
    pub(super) unexplained_executions: usize,
    /// Number of executions with a later attempt number than the completion of their job, or that started after the completion without a
    /// fault that explains the late start.
    pub(super) stale_completions: usize,
    /// Number of jobs that completed without a successful execution, or whose output names a process without such an execution.
    pub(super) unfounded_completions: usize,
    /// Number of attempts whose process was killed and whose attempt number was reused by the next attempt.
    pub(super) uncounted_attempts: usize,
    /// Number of jobs that started during a pause that all workers had acknowledged.
    pub(super) begun_while_paused: usize,
    /// Number of jobs that expired although they had started or had time left.
    pub(super) expired_wrongly: usize,
    /// Number of jobs that started for the first time after their start deadline.
    pub(super) begun_too_late: usize,
    /// Descriptions of the first findings, for humans.
    #[serde(skip)]
    pub(super) notes: Vec<String>,
}

/// Execution of a job's handler, as recorded in the history.
#[derive(Clone, Debug)]
struct Execution {
    who: String,
    attempt: u32,
    start: u64,
    end: Option<(u64, bool)>,
}

/// Injected faults, for finding a fault that explains a violation.
pub(super) struct FaultLookup<'a> {
    pub(super) faults: &'a [Fault],
}

/// Time in microseconds after a fault during which the fault may still have effects, such as missed heartbeats and reconnects.
const AFTERMATH: u64 = 6_000_000;

/// Maximum difference in microseconds between the time of an event in the history and the time in its row. The two times come from
/// different clock readings.
pub(super) const SLACK: u64 = 5_000;

/// Maximum time in microseconds from a worker's deadline check to the first line of the handler, on a busy machine.
const START_LATENCY: u64 = 500_000;

/// Maximum time in microseconds between the start of an expiry scan and the check of a job's deadline. The start of the scan is recorded as
/// the end of the job.
const SCAN_DURATION: i64 = 1_000_000;

pub(super) fn check(history: &[Entry], faults: &[Fault], jobs: &[FinalState]) -> Findings {
    let mut found = Findings::default();
    let (mut attempted, mut acked, mut rolled_back) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for entry in history {
        match entry.line {
            Line::Attempted(n) => drop(attempted.insert(n)),
            Line::Acked(n) => drop(acked.insert(n)),
            Line::RolledBack(n) => drop(rolled_back.insert(n)),
            Line::Start(..) | Line::End(..) | Line::Dropped(..) | Line::DurableAction(..) => {}
        }
    }
    let executions = executions(history);
    let mut finals: BTreeMap<u64, Vec<&FinalState>> = BTreeMap::new();
    for job in jobs {
        finals.entry(job.n.cast_unsigned()).or_default().push(job);
    }
    (found.attempted, found.acknowledged) = (attempted.len(), acked.len());
    let none = Vec::new();
    for n in &acked {
        let there = finals.get(n).unwrap_or(&none);
        if !there.iter().any(|job| job.is_concluded()) {
            found.lost += 1;
            found.note(|| {
                format!("lost: {n} was acknowledged and is {:?}", there.iter().map(|job| (&job.state, &job.error)).collect::<Vec<_>>())
            });
        }
    }
    for (n, there) in &finals {
        if !attempted.contains(n) || rolled_back.contains(n) || there.len() > 1 {
            found.unexpected += 1;
            found.note(|| format!("unexpected: {n} exists {} times", there.len()));
        }
    }
    for n in executions.keys().filter(|n| !finals.contains_key(n)) {
        found.unexpected += 1;
        found.note(|| format!("unexpected: {n} ran and does not exist"));
    }
    let lookup = FaultLookup { faults };
    for (n, runs) in &executions {
        found.executions += runs.len();
        check_repeats(&mut found, &lookup, *n, runs);
        for run in runs.iter().filter(|run| lookup.is_paused(*n, run)) {
            found.begun_while_paused += 1;
            found.note(|| format!("started while paused: {n} {run:?}"));
        }
    }
    for (n, there) in &finals {
        for job in there {
            let runs = executions.get(n).map_or(&[][..], Vec::as_slice);
            check_deadline(&mut found, &lookup, *n, job, runs);
            check_completion(&mut found, &lookup, *n, job, runs);
        }
    }
    found
}

/// Returns the violations of the job order within each key. A job violates the order if it starts after a later job of its key, or while
/// another job of its key runs. A later job has a higher number.
pub(super) fn out_of_order(history: &[Entry], key: impl Fn(u64) -> u64) -> Vec<String> {
    let mut keys: BTreeMap<u64, Vec<(u64, Execution)>> = BTreeMap::new();
    for (n, runs) in executions(history) {
        keys.entry(key(n)).or_default().extend(runs.into_iter().map(|run| (n, run)));
    }
    let mut wrong = Vec::new();
    for (key, mut runs) in keys {
        runs.sort_by_key(|(_, run)| run.start);
        for pair in runs.windows(2) {
            let ((first, run), (next, after)) = (&pair[0], &pair[1]);
            if next < first {
                wrong.push(format!("key {key}: {next} started after {first}"));
            }
            if next != first && run.end.is_none_or(|(end, _)| end > after.start) {
                wrong.push(format!("key {key}: {next} started while {first} ran"));
            }
        }
    }
    wrong
}

impl FinalState {
    /// Returns whether the job ended in an expected state.
    fn is_concluded(&self) -> bool {
        matches!(self.state.as_str(), "completed" | "expired") || self.is_dead_of_crashes() || self.is_dead_of_poison()
    }

    pub(super) fn is_dead_of_crashes(&self) -> bool {
        self.state == "dead"
            && self.error.as_deref().is_some_and(|error| error.starts_with("the process ended during the attempt, 3 times"))
    }

    fn is_dead_of_poison(&self) -> bool {
        self.poison && self.state == "dead" && self.error.as_deref() == Some(POISON)
    }
}

/// Returns the executions of each job, ordered by start.
fn executions(history: &[Entry]) -> BTreeMap<u64, Vec<Execution>> {
    let mut all: BTreeMap<u64, Vec<Execution>> = BTreeMap::new();
    let mut open: HashMap<(u64, &str, u32), usize> = HashMap::new();
    for entry in history {
        match entry.line {
            Line::Start(n, _, attempt) => {
                let runs = all.entry(n).or_default();
                open.insert((n, &entry.who, attempt), runs.len());
                runs.push(Execution { who: entry.who.clone(), attempt, start: entry.at, end: None });
            }
            Line::End(n, _, attempt, good) => {
                if let Some(place) = open.remove(&(n, entry.who.as_str(), attempt))
                    && let Some(run) = all.get_mut(&n).and_then(|runs| runs.get_mut(place))
                {
                    run.end = Some((entry.at, good));
                }
            }
            _ => {}
        }
    }
    all
}

/// Checks that a fault or a failure explains each repeated execution of a job.
fn check_repeats(found: &mut Findings, lookup: &FaultLookup<'_>, n: u64, runs: &[Execution]) {
    for pair in runs.windows(2) {
        let (first, next) = (&pair[0], &pair[1]);
        if first.end.is_some_and(|(at, good)| !good && at <= next.start) {
            continue;
        }
        found.duplicate_executions += 1;
        let explained = [first, next].iter().any(|run| lookup.on_worker(run, next.start)) || lookup.on_server(first.start, next.start);
        if !explained {
            found.unexplained_executions += 1;
            found.note(|| format!("unexplained: {n} ran again: {first:?} {next:?}"));
        }
        // A crash of the server may lose a claim together with its attempt number. The next attempt may then reuse the number.
        let killed = lookup.kill_of(&first.who).is_some_and(|at| at < next.start);
        if killed && first.attempt == next.attempt && !lookup.on_server(first.start, next.start) {
            found.uncounted_attempts += 1;
            found.note(|| format!("uncounted: {n} {first:?} {next:?}"));
        }
    }
}

/// Checks that an expired job was past its deadline and had not started. A start does not count if the worker may have lost the job, or if
/// the server may have lost the claim.
fn check_expiry(found: &mut Findings, lookup: &FaultLookup<'_>, n: u64, job: &FinalState, runs: &[Execution]) {
    found.expired += 1;
    let at = job.at.unsigned_abs();
    let begun = runs.iter().any(|run| !lookup.on_worker(run, at) && !lookup.on_server(run.start, at));
    if begun || job.expires_at.is_none_or(|expires| expires > job.at + SCAN_DURATION) {
        found.expired_wrongly += 1;
        found.note(|| format!("expired wrongly: {n} {job:?} {runs:?}"));
    }
}

/// Checks that no first attempt started after the job's deadline. An attempt whose process was stopped before the handler's first line may
/// be late.
fn check_deadline(found: &mut Findings, lookup: &FaultLookup<'_>, n: u64, job: &FinalState, runs: &[Execution]) {
    let Some(expires) = job.expires_at else { return };
    let late = |run: &&Execution| run.attempt == 1 && run.start > expires.unsigned_abs() + START_LATENCY;
    for run in runs.iter().filter(late).filter(|run| !lookup.on_worker(run, run.start)) {
        found.begun_too_late += 1;
        found.note(|| format!("started too late: {n} {job:?} {run:?}"));
    }
}

/// Counts the job under its final state. Checks that a completed job has a successful execution with the attempt number of the completion,
/// and that no other execution is stale. Checks an expired job with `check_expiry`.
fn check_completion(found: &mut Findings, lookup: &FaultLookup<'_>, n: u64, job: &FinalState, runs: &[Execution]) {
    match job.state.as_str() {
        "completed" => found.completed += 1,
        "dead" if job.is_dead_of_poison() => {
            found.poison += 1;
            return;
        }
        "dead" => {
            found.dead += 1;
            return;
        }
        "expired" => return check_expiry(found, lookup, n, job, runs),
        _ => return,
    }
    let (attempts, at) = (job.attempts.unsigned_abs(), job.at.unsigned_abs());
    let well = |run: &&Execution| run.attempt == attempts && run.end.is_some_and(|(end, good)| good && end <= at + SLACK);
    let wrote_output = |run: &&Execution| job.output.as_ref().is_none_or(|output| *output == run.who);
    let Some(settled) = runs.iter().filter(well).rfind(wrote_output) else {
        found.unfounded_completions += 1;
        found.note(|| format!("unfounded: {n} {job:?} {runs:?}"));
        return;
    };
    for run in runs.iter().filter(|run| run.start != settled.start) {
        let later_lease = run.attempt > attempts;
        // Whether the execution may have started under an earlier lease, in a process that did not know that the lease was lost.
        let zombie =
            run.attempt <= attempts && (lookup.on_worker(run, run.start) || lookup.on_server(settled.start.min(run.start), run.start));
        if later_lease || (run.start > at + SLACK && !zombie) {
            found.stale_completions += 1;
            found.note(|| format!("stale: {n} {job:?} {settled:?} {run:?}"));
        }
    }
}

impl FaultLookup<'_> {
    /// Returns whether a fault hit the execution's process or its connections before `by`, so that the execution may have lost its lease.
    fn on_worker(&self, run: &Execution, by: u64) -> bool {
        self.on_process(&run.who, run.start, by)
    }

    /// Returns whether a fault hit the process `who` between `from` and `by`, or shortly before.
    pub(super) fn on_process(&self, who: &str, from: u64, by: u64) -> bool {
        let concerns = |fault: &&Fault| match fault.kind {
            Kind::Kill | Kind::Stop => fault.who == who,
            Kind::Cut | Kind::CommitCut | Kind::Delay | Kind::Hole | Kind::Drop => who.starts_with(&fault.who),
            Kind::Server | Kind::Terminate | Kind::Pause => false,
        };
        self.faults.iter().filter(concerns).any(|fault| fault.from < by && fault.until + AFTERMATH > from)
    }

    /// Returns whether the server was down between `from` and `until`, or shortly before or after.
    pub(super) fn on_server(&self, from: u64, until: u64) -> bool {
        let mut away = self.faults.iter().filter(|fault| fault.kind == Kind::Server);
        away.any(|fault| fault.from < until + 1_000_000 && fault.until + AFTERMATH > from)
    }

    /// Returns whether the execution started during a pause that all workers had acknowledged. Returns false if the process was stopped
    /// between the start of the handler and the handler's first line, because the recorded start is then too late.
    fn is_paused(&self, n: u64, run: &Execution) -> bool {
        let covers = |fault: &Fault| match fault.who.as_str() {
            "" => true,
            "the queue" => !is_limited(n),
            _ => is_batched(n),
        };
        let within = |fault: &Fault| covers(fault) && fault.quiet.is_some_and(|quiet| quiet < run.start && run.start < fault.until);
        let went_on = |fault: &&Fault| fault.kind == Kind::Stop && fault.who == run.who && run.start.abs_diff(fault.until) < 50_000;
        self.faults.iter().any(within) && !self.faults.iter().any(|fault| went_on(&fault))
    }

    fn kill_of(&self, who: &str) -> Option<u64> {
        self.faults.iter().find(|fault| fault.kind == Kind::Kill && fault.who == who).map(|fault| fault.from)
    }
}

impl Findings {
    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.notes.len() < 20 {
            self.notes.push(text());
        }
    }

    /// Returns the number of violations.
    pub(super) fn faults(&self) -> usize {
        self.lost
            + self.unexpected
            + self.unexplained_executions
            + self.stale_completions
            + self.unfounded_completions
            + self.uncounted_attempts
            + self.begun_while_paused
            + self.expired_wrongly
            + self.begun_too_late
    }
}
