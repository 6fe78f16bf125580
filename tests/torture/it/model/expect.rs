//! Model of the expected state of each job. The model uses no tables, and does not depend on the implementation of the statements.

use std::collections::{BTreeMap, BTreeSet};

use queue_core::JobId;
use tests::protocol::{JobVerdict, Lease, Refused};
use uuid::Uuid;

use super::{op::LANES, rules::Rules};

/// State of a job in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobPlace {
    /// Ready, with the step that determines the position in the lane. Jobs with earlier steps are claimed first.
    Ready(usize),
    Scheduled {
        due: bool,
    },
    Running(Uuid),
    Completed {
        output: bool,
    },
    Cancelled,
    Expired,
    Dead,
    Gone,
}

/// Expected state of one job. A job with crashes is quarantined, so it is in the solo lane for quarantined jobs.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) place: JobPlace,
    pub(super) lane: usize,
    pub(super) attempts: i16,
    pub(super) crashes: i16,
    pub(super) failures: i64,
    /// Step in which the job was enqueued. A released job returns to this position.
    born: usize,
    /// Whether the job's rows are in a day partition, which may be dropped.
    in_day: bool,
    /// Whether the start deadline has passed. `None` if the job has no start deadline.
    late: Option<bool>,
}

/// Number of crashes after which a job becomes a dead letter.
const CONVICTED: i16 = 3;

/// Expected state of all jobs, leases and workers.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) jobs: BTreeMap<JobId, Job>,
    /// Worker of each lease, including ended leases.
    holders: BTreeMap<Uuid, Uuid>,
    alive: BTreeSet<Uuid>,
    /// Whether a partition for today exists.
    today: bool,
    now: usize,
    pub(super) rules: Rules,
}

impl Model {
    pub(super) fn new() -> Self {
        Self { jobs: BTreeMap::new(), holders: BTreeMap::new(), alive: BTreeSet::new(), today: true, now: 0, rules: Rules::default() }
    }

    pub(super) fn step(&mut self) {
        self.now += 1;
    }

    /// Returns the jobs of `ids` whose state satisfies `place`.
    pub(super) fn those(&self, ids: &[JobId], place: impl Fn(JobPlace) -> bool) -> BTreeSet<JobId> {
        ids.iter().copied().filter(|id| self.jobs.get(id).is_some_and(|job| place(job.place))).collect()
    }

    fn all(&self, place: impl Fn(JobPlace) -> bool) -> BTreeSet<JobId> {
        self.jobs.iter().filter(|(_, job)| place(job.place)).map(|(id, _)| *id).collect()
    }

    fn job(&mut self, id: JobId) -> &mut Job {
        self.jobs.get_mut(&id).unwrap_or_else(|| panic!("{id} was never enqueued"))
    }

    pub(super) fn held(&self, token: Uuid) -> BTreeSet<JobId> {
        self.all(|place| place == JobPlace::Running(token))
    }

    /// Returns whether a lease may be settled as a whole, which requires that all its remaining jobs are on their first attempt.
    pub(super) fn may_be_whole(&self, token: Uuid) -> bool {
        self.held(token).iter().all(|id| self.jobs[id].attempts == 1)
    }

    pub(super) fn enqueue(&mut self, id: JobId, lane: usize, later: bool) -> Result<(), String> {
        let place = if later { JobPlace::Scheduled { due: false } } else { JobPlace::Ready(self.now) };
        let job = Job { place, lane, attempts: 0, crashes: 0, failures: 0, born: self.now, in_day: self.today, late: None };
        match self.jobs.insert(id, job) {
            None => Ok(()),
            Some(_) => Err(format!("id {id} was assigned twice")),
        }
    }

    pub(super) fn register(&mut self, worker: Uuid) {
        self.alive.insert(worker);
    }

    pub(super) fn lose(&mut self, worker: Uuid) {
        self.alive.remove(&worker);
    }

    pub(super) fn holder(&self, token: Uuid) -> Option<Uuid> {
        self.holders.get(&token).copied()
    }

    pub(super) fn lives(&self, worker: Uuid) -> bool {
        self.alive.contains(&worker)
    }

    pub(super) fn living(&self) -> impl Iterator<Item = Uuid> {
        self.alive.iter().copied()
    }

    /// Returns the tokens of all leases, including ended leases.
    pub(super) fn tokens(&self) -> Vec<Uuid> {
        self.holders.keys().copied().collect()
    }

    /// Applies a claim. If enough jobs are ready, the claim must return `room` jobs. It must visit `lanes` in order, and take the oldest
    /// jobs of each lane first.
    pub(super) fn claim(&mut self, worker: Uuid, mut room: usize, lease: &Lease, lanes: &[(usize, bool)]) -> Result<(), String> {
        let taken: BTreeSet<JobId> = lease.ids().into_iter().collect();
        if taken.len() != lease.jobs.len() {
            return Err("a job was claimed twice in one claim".to_owned());
        }
        let mut seen = BTreeSet::new();
        for (lane, solo) in lanes {
            let mut waiting: Vec<(usize, JobId)> = Vec::new();
            for (id, job) in &self.jobs {
                if let (JobPlace::Ready(since), true) = (job.place, job.lane == *lane && (job.crashes > 0) == *solo) {
                    waiting.push((since, *id));
                }
            }
            waiting.sort_unstable();
            let (first, rest): (Vec<_>, Vec<_>) = waiting.iter().partition(|(_, id)| taken.contains(id));
            if first.len() != room.min(waiting.len()) {
                return Err(format!("lane {lane} (solo: {solo}) has {waiting:?}, the claim may take {room}, and took {first:?}"));
            }
            if first.last().zip(rest.first()).is_some_and(|((taken, _), (left, _))| taken > left) {
                return Err(format!("the claim took {first:?} and left {rest:?}"));
            }
            room -= first.len();
            seen.extend(first.into_iter().map(|(_, id)| id));
        }
        if seen != taken {
            return Err(format!("the claim took {:?}, which were not ready", taken.difference(&seen)));
        }
        for held in &lease.jobs {
            let job = self.job(held.id);
            job.attempts += 1;
            job.place = JobPlace::Running(lease.token);
            if (job.attempts, job.crashes) != (held.attempts, held.crashes) {
                return Err(format!("the claim returned {held:?} for {job:?}"));
            }
        }
        self.holders.insert(lease.token, worker);
        Ok(())
    }

    /// Applies verdicts. Returns the rejected verdicts.
    pub(super) fn settle(&mut self, verdicts: &[JobVerdict], whole: &[Uuid]) -> BTreeSet<Refused> {
        let mut refused = BTreeSet::new();
        for one in verdicts {
            if self.jobs.get(&one.job.id).is_some_and(|job| job.place == JobPlace::Running(one.token)) {
                self.verdict(one.job.id, one.verdict);
            } else {
                refused.insert((one.token, Some(one.job.id)));
            }
        }
        for token in whole {
            let ids = self.held(*token);
            if ids.is_empty() {
                refused.insert((*token, None));
            }
            for id in ids {
                self.job(id).place = JobPlace::Completed { output: false };
            }
        }
        refused
    }

    fn verdict(&mut self, id: JobId, verdict: &str) {
        let job = self.job(id);
        job.place = match verdict {
            "plain" => JobPlace::Completed { output: false },
            "complete" => JobPlace::Completed { output: true },
            "cancel" => JobPlace::Cancelled,
            "forget" => JobPlace::Gone,
            "dead" => JobPlace::Dead,
            "release" => JobPlace::Ready(job.born),
            "retry" | "snooze" => JobPlace::Scheduled { due: false },
            other => panic!("unknown verdict: {other}"),
        };
        job.attempts -= i16::from(matches!(verdict, "release" | "snooze"));
        job.failures += i64::from(matches!(verdict, "retry" | "dead"));
    }

    pub(super) fn give_back(&mut self, tokens: &[Uuid]) -> usize {
        let ids: Vec<JobId> = tokens.iter().flat_map(|token| self.held(*token)).collect();
        for id in &ids {
            self.verdict(*id, "release");
        }
        ids.len()
    }

    /// Applies a recovery. Returns the number of recovered jobs, and the number of recovered jobs that became dead letters.
    pub(super) fn recover(&mut self) -> (usize, usize) {
        let silent: Vec<Uuid> = self.holders.iter().filter(|(_, worker)| !self.alive.contains(worker)).map(|(token, _)| *token).collect();
        let ids: Vec<JobId> = silent.iter().flat_map(|token| self.held(*token)).collect();
        let now = self.now;
        let mut convicted = 0;
        for id in &ids {
            let job = self.job(*id);
            job.crashes += 1;
            job.failures += 1;
            job.place = if job.crashes < CONVICTED { JobPlace::Ready(now) } else { JobPlace::Dead };
            convicted += usize::from(job.crashes >= CONVICTED);
        }
        (ids.len(), convicted)
    }

    /// Gives a job a start deadline that has not passed.
    pub(super) fn set_start_deadline(&mut self, id: JobId) {
        self.job(id).late = Some(false);
    }

    /// Returns the existing jobs that have a start deadline.
    pub(super) fn expiring(&self) -> BTreeSet<JobId> {
        self.jobs.iter().filter(|(_, job)| job.late.is_some() && job.place != JobPlace::Gone).map(|(id, _)| *id).collect()
    }

    pub(super) fn make_late(&mut self, ids: &[JobId]) {
        for id in ids {
            self.job(*id).late = Some(true);
        }
    }

    /// Returns the jobs whose start deadline has passed.
    pub(super) fn late(&self) -> BTreeSet<JobId> {
        self.expiring().into_iter().filter(|id| self.jobs[id].late == Some(true)).collect()
    }

    /// Expires queued jobs that have not started and whose start deadline has passed. Returns the number of expired jobs.
    pub(super) fn expire_due(&mut self) -> usize {
        let waits =
            |job: &Job| matches!(job.place, JobPlace::Ready(_) | JobPlace::Scheduled { .. }) && job.attempts == 0 && job.crashes == 0;
        let expired: BTreeSet<JobId> = self.late().into_iter().filter(|id| waits(&self.jobs[id])).collect();
        self.put(&expired, JobPlace::Expired);
        expired.len()
    }

    /// Applies the release of jobs that a worker does not start. Jobs that never started expire if their deadline has passed. All other
    /// jobs become ready again. Returns the rejected verdicts and the number of expired jobs.
    pub(super) fn expire_held(&mut self, verdicts: &[JobVerdict]) -> (BTreeSet<Refused>, usize) {
        let (mut refused, mut expired) = (BTreeSet::new(), 0);
        for one in verdicts {
            let id = one.job.id;
            match self.jobs.get(&id) {
                Some(job) if job.place == JobPlace::Running(one.token) => {
                    let expires = (job.late, job.attempts, job.crashes) == (Some(true), 1, 0);
                    self.verdict(id, "release");
                    if expires {
                        self.job(id).place = JobPlace::Expired;
                        expired += 1;
                    }
                }
                _ => drop(refused.insert((one.token, Some(id)))),
            }
        }
        (refused, expired)
    }

    /// Applies a promotion. The statement may choose any due jobs, so this function checks only that the `chosen` jobs are due and
    /// that their number is right.
    pub(super) fn promote(&mut self, most: usize, chosen: &BTreeSet<JobId>) -> Result<(), String> {
        let due = self.all(|place| place == JobPlace::Scheduled { due: true });
        if chosen.len() != due.len().min(most) || !chosen.is_subset(&due) {
            return Err(format!("{due:?} are due, {chosen:?} of at most {most} were promoted"));
        }
        for id in chosen {
            let now = self.now;
            self.job(*id).place = JobPlace::Ready(now);
        }
        Ok(())
    }

    pub(super) fn make_due(&mut self, id: JobId) {
        let job = self.job(id);
        if matches!(job.place, JobPlace::Scheduled { .. }) {
            job.place = JobPlace::Scheduled { due: true };
        }
    }

    /// Applies an operator's requeue of dead or finished jobs.
    pub(super) fn requeue(&mut self, ids: &BTreeSet<JobId>) {
        let now = self.now;
        for id in ids {
            let job = self.job(*id);
            (job.place, job.attempts, job.crashes, job.late) = (JobPlace::Ready(now), 0, 0, None);
        }
    }

    pub(super) fn put(&mut self, ids: &BTreeSet<JobId>, place: JobPlace) {
        for id in ids {
            self.job(*id).place = place;
        }
    }

    /// Drops the day partition of today. Returns the number of jobs in the dropped history. History outside of the partition is kept.
    pub(super) fn drop_day(&mut self) -> usize {
        if !std::mem::replace(&mut self.today, false) {
            return 0;
        }
        let pruned = self.prune(true);
        for job in self.jobs.values_mut() {
            job.in_day = false;
        }
        pruned
    }

    /// Prunes the history in today's partition if `in_day` is set, otherwise the history outside of any day partition. Returns the number
    /// of pruned jobs.
    pub(super) fn prune(&mut self, in_day: bool) -> usize {
        let finished = self.all(|place| matches!(place, JobPlace::Completed { .. } | JobPlace::Cancelled | JobPlace::Expired));
        let finished: BTreeSet<JobId> = finished.into_iter().filter(|id| self.jobs[id].in_day == in_day).collect();
        self.put(&finished, JobPlace::Gone);
        finished.len()
    }

    /// Creates the day partition of today, unless the default partition contains rows of today. Returns whether the partition was
    /// created.
    pub(super) fn add_days(&mut self) -> bool {
        let made = !self.today && self.jobs.values().all(|job| job.in_day || job.place == JobPlace::Gone);
        self.today |= made;
        made
    }

    /// Returns the expected contents of the tables, one line per job.
    pub(super) fn rows(&self, lanes: &BTreeMap<i64, (usize, bool)>) -> Vec<String> {
        let lane = |job: &Job| lanes.iter().find(|(_, of)| **of == (job.lane, job.crashes > 0)).map_or(0, |(lane, _)| *lane);
        let present = self.jobs.iter().filter(|(_, job)| job.place != JobPlace::Gone);
        let row = |(id, job): (&JobId, &Job)| {
            let (attempts, crashes, failures) = (job.attempts, job.crashes, job.failures);
            match job.place {
                JobPlace::Ready(_) => format!("{id} ready lane={} {attempts} {crashes} failures={failures}", lane(job)),
                JobPlace::Scheduled { due } => {
                    format!("{id} scheduled lane={} {attempts} {crashes} due={due} failures={failures}", lane(job))
                }
                JobPlace::Running(token) => format!("{id} running {token} {attempts} {crashes} failures={failures}"),
                JobPlace::Completed { output } => format!("{id} completed {attempts} output={output} failures={failures}"),
                JobPlace::Expired => format!("{id} expired {attempts} output=false failures={failures}"),
                JobPlace::Cancelled => format!("{id} cancelled {attempts} output=false failures={failures}"),
                JobPlace::Dead => format!("{id} dead lane={} {attempts} {crashes} failures={failures}", lane(job)),
                JobPlace::Gone => String::new(),
            }
        };
        present.map(row).collect()
    }

    /// Returns the expected contents of the operator's view: id, state, queue and attempts of each job.
    pub(super) fn seen(&self) -> Vec<(JobId, String, String, i16)> {
        let present = self.jobs.iter().filter(|(_, job)| job.place != JobPlace::Gone);
        let state = |place| match place {
            JobPlace::Ready(_) => "ready",
            JobPlace::Scheduled { .. } => "scheduled",
            JobPlace::Running(_) => "running",
            JobPlace::Completed { .. } => "completed",
            JobPlace::Cancelled => "cancelled",
            JobPlace::Expired => "expired",
            JobPlace::Dead => "dead",
            JobPlace::Gone => "gone",
        };
        present.map(|(id, job)| (*id, state(job.place).to_owned(), LANES[job.lane].0.to_owned(), job.attempts)).collect()
    }
}
