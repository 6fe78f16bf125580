//! Compares what the processes say they did with what the database says became of the jobs, and with what was done to them.
//!
//! Pure: histories, faults and rows in, a verdict out.

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

/// What the database says of one job in the end.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct Final {
    pub(super) n: i64,
    pub(super) state: String,
    pub(super) attempts: i32,
    pub(super) output: Option<String>,
    pub(super) error: Option<String>,
    /// Microseconds since 1970.
    pub(super) at: i64,
    /// Until when it was to begin, in the same.
    pub(super) expires_at: Option<i64>,
    /// Whether it fails whatever batch it is in.
    pub(super) poison: bool,
}

/// What was found.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Findings {
    pub(super) attempted: usize,
    pub(super) acknowledged: usize,
    pub(super) completed: usize,
    /// Dead letters whose reason is three crashes, each explained by a fault.
    pub(super) dead: usize,
    /// Dead letters of poison, which is what becomes of it.
    pub(super) poison: usize,
    /// Over because they had not begun in time.
    pub(super) expired: usize,
    /// Acknowledged and neither completed, expired nor dead for a stated reason.
    pub(super) lost: usize,
    /// In the database though never attempted, rolled back, or there twice; or run though not in the database.
    pub(super) unexpected: usize,
    pub(super) executions: usize,
    /// Executions beyond the first that no failure asked for.
    pub(super) duplicate_executions: usize,
    /// Those that no fault explains: the first one's lease was valid.
    pub(super) unexplained_executions: usize,
    /// A job that began again, or went on under a later lease, though its completion stands under an earlier one.
    pub(super) stale_completions: usize,
    /// Completed without any execution that said it went well, or by another one than the output names.
    pub(super) unfounded_completions: usize,
    /// A killed attempt whose number was given to the next one.
    pub(super) uncounted_attempts: usize,
    /// Begun between the word of all workers that nothing begins and the end of that pause.
    pub(super) begun_while_paused: usize,
    /// Expired though they had begun, or had time left.
    pub(super) expired_wrongly: usize,
    /// Begun for the first time after they were to have begun.
    pub(super) begun_too_late: usize,
    /// The first of each sort, for people.
    #[serde(skip)]
    pub(super) notes: Vec<String>,
}

/// One run of a handler.
#[derive(Clone, Debug)]
struct Execution {
    who: String,
    attempt: u32,
    start: u64,
    end: Option<(u64, bool)>,
}

/// Faults by whom they concern.
pub(super) struct Blame<'a> {
    pub(super) faults: &'a [Fault],
}

/// What a fault may still cause after it: a heartbeat that was due, reconnecting.
const AFTERMATH: u64 = 6_000_000;

/// What is between a verdict and its row: clocks read apart.
pub(super) const SLACK: u64 = 5_000;

/// What may be between a worker's look at the clock and the first line of a handler, on a machine that is kept busy.
const LATE: u64 = 500_000;

/// What has expired says when the look for it began, which may be so much before it was seen to be over.
const LOOK: i64 = 1_000_000;

pub(super) fn check(history: &[Entry], faults: &[Fault], jobs: &[Final]) -> Findings {
    let mut found = Findings::default();
    let (mut attempted, mut acked, mut rolled_back) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for entry in history {
        match entry.line {
            Line::Attempted(n) => drop(attempted.insert(n)),
            Line::Acked(n) => drop(acked.insert(n)),
            Line::RolledBack(n) => drop(rolled_back.insert(n)),
            Line::Start(..) | Line::End(..) | Line::Dropped(..) | Line::Did(..) => {}
        }
    }
    let executions = executions(history);
    let mut finals: BTreeMap<u64, Vec<&Final>> = BTreeMap::new();
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
            found.note(|| format!("unexpected: {n} is there {} times", there.len()));
        }
    }
    for n in executions.keys().filter(|n| !finals.contains_key(n)) {
        found.unexpected += 1;
        found.note(|| format!("unexpected: {n} ran and is not there"));
    }
    let blame = Blame { faults };
    for (n, runs) in &executions {
        found.executions += runs.len();
        repeat(&mut found, &blame, *n, runs);
        for run in runs.iter().filter(|run| blame.is_paused(*n, run)) {
            found.begun_while_paused += 1;
            found.note(|| format!("begun while paused: {n} {run:?}"));
        }
    }
    for (n, there) in &finals {
        for job in there {
            let runs = executions.get(n).map_or(&[][..], Vec::as_slice);
            in_time(&mut found, &blame, *n, job, runs);
            conclude(&mut found, &blame, *n, job, runs);
        }
    }
    found
}

/// What is wrong with the order in which jobs of one key ran, whose numbers ascend as their places do: one began after a later one, or while
/// another ran.
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
                wrong.push(format!("key {key}: {next} began after {first}"));
            }
            if next != first && run.end.is_none_or(|(end, _)| end > after.start) {
                wrong.push(format!("key {key}: {next} began while {first} ran"));
            }
        }
    }
    wrong
}

impl Final {
    /// Whether what became of it is what may become of a job.
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

/// Each job's executions, in the order of their starts.
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

/// Why a job ran more than once.
fn repeat(found: &mut Findings, blame: &Blame<'_>, n: u64, runs: &[Execution]) {
    for pair in runs.windows(2) {
        let (first, next) = (&pair[0], &pair[1]);
        if first.end.is_some_and(|(at, good)| !good && at <= next.start) {
            continue;
        }
        found.duplicate_executions += 1;
        let explained = [first, next].iter().any(|run| blame.on_worker(run, next.start)) || blame.on_server(first.start, next.start);
        if !explained {
            found.unexplained_executions += 1;
            found.note(|| format!("unexplained: {n} ran again: {first:?} {next:?}"));
        }
        // A crash of the server may forget a claim, and the attempt with it.
        let killed = blame.kill_of(&first.who).is_some_and(|at| at < next.start);
        if killed && first.attempt == next.attempt && !blame.on_server(first.start, next.start) {
            found.uncounted_attempts += 1;
            found.note(|| format!("uncounted: {n} {first:?} {next:?}"));
        }
    }
}

/// Whether it was to expire: its time had come, and it had not begun. A run may be forgotten with its worker or with what the server lost.
fn expired(found: &mut Findings, blame: &Blame<'_>, n: u64, job: &Final, runs: &[Execution]) {
    found.expired += 1;
    let at = job.at.unsigned_abs();
    let begun = runs.iter().any(|run| !blame.on_worker(run, at) && !blame.on_server(run.start, at));
    if begun || job.expires_at.is_none_or(|expires| expires > job.at + LOOK) {
        found.expired_wrongly += 1;
        found.note(|| format!("expired wrongly: {n} {job:?} {runs:?}"));
    }
}

/// Whether it began when its time was over. Later attempts may be late, and so is one whose process stood still before its first line.
fn in_time(found: &mut Findings, blame: &Blame<'_>, n: u64, job: &Final, runs: &[Execution]) {
    let Some(expires) = job.expires_at else { return };
    let late = |run: &&Execution| run.attempt == 1 && run.start > expires.unsigned_abs() + LATE;
    for run in runs.iter().filter(late).filter(|run| !blame.on_worker(run, run.start)) {
        found.begun_too_late += 1;
        found.note(|| format!("begun too late: {n} {job:?} {run:?}"));
    }
}

/// Whether a completion is founded on an execution whose lease was live.
fn conclude(found: &mut Findings, blame: &Blame<'_>, n: u64, job: &Final, runs: &[Execution]) {
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
        "expired" => return expired(found, blame, n, job, runs),
        _ => return,
    }
    let (attempts, at) = (job.attempts.unsigned_abs(), job.at.unsigned_abs());
    let well = |run: &&Execution| run.attempt == attempts && run.end.is_some_and(|(end, good)| good && end <= at + SLACK);
    let said = |run: &&Execution| job.output.as_ref().is_none_or(|output| *output == run.who);
    let Some(settled) = runs.iter().filter(well).rfind(said) else {
        found.unfounded_completions += 1;
        found.note(|| format!("unfounded: {n} {job:?} {runs:?}"));
        return;
    };
    for run in runs.iter().filter(|run| run.start != settled.start) {
        let later_lease = run.attempt > attempts;
        // It began under an earlier lease, in a process that did not know it was lost.
        let zombie =
            run.attempt <= attempts && (blame.on_worker(run, run.start) || blame.on_server(settled.start.min(run.start), run.start));
        if later_lease || (run.start > at + SLACK && !zombie) {
            found.stale_completions += 1;
            found.note(|| format!("stale: {n} {job:?} {settled:?} {run:?}"));
        }
    }
}

impl Blame<'_> {
    /// Whether something was done to this execution's process, or to its connections, that may have cost it its lease by then.
    fn on_worker(&self, run: &Execution, by: u64) -> bool {
        self.on_process(&run.who, run.start, by)
    }

    /// The same of any process, in this span.
    pub(super) fn on_process(&self, who: &str, from: u64, by: u64) -> bool {
        let concerns = |fault: &&Fault| match fault.kind {
            Kind::Kill | Kind::Stop => fault.who == who,
            Kind::Cut | Kind::CommitCut | Kind::Delay | Kind::Hole | Kind::Drop => who.starts_with(&fault.who),
            Kind::Server | Kind::Terminate | Kind::Pause => false,
        };
        self.faults.iter().filter(concerns).any(|fault| fault.from < by && fault.until + AFTERMATH > from)
    }

    /// Whether the server was away at some time of this span, or shortly before.
    pub(super) fn on_server(&self, from: u64, until: u64) -> bool {
        let mut away = self.faults.iter().filter(|fault| fault.kind == Kind::Server);
        away.any(|fault| fault.from < until + 1_000_000 && fault.until + AFTERMATH > from)
    }

    /// Whether it began while nothing was to. A process may have been stopped between a handler's beginning and its first line.
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

    /// How many things must not be.
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
