//! The model: what becomes of each job, told without tables. Nothing here knows how the statements do it.

use std::collections::{BTreeMap, BTreeSet};

use queue_core::JobId;
use tests::protocol::{Lease, Refused, Said};
use uuid::Uuid;

use super::{op::LANES, rules::Rules};

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Since that step: who came earlier is claimed earlier.
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

/// One job. Under suspicion, and so in its lane's solo twin, while it has crashes.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) place: Place,
    pub(super) lane: usize,
    pub(super) attempts: i16,
    pub(super) crashes: i16,
    pub(super) failures: i64,
    /// When it was enqueued, which is the place that a released job goes back to.
    born: usize,
    /// Whether its rows are in the partition of its day, which may be dropped.
    in_day: bool,
    /// Whether there is a time by which it is to begin, and that has come.
    late: Option<bool>,
}

/// Crashes that make a dead letter.
const CONVICTED: i16 = 3;

/// Everything there is.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) jobs: BTreeMap<JobId, Job>,
    /// Who holds which lease; those that ended too.
    holders: BTreeMap<Uuid, Uuid>,
    alive: BTreeSet<Uuid>,
    /// Whether today has a partition.
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

    /// The ids of those of `ids` that are in such a place.
    pub(super) fn those(&self, ids: &[JobId], place: impl Fn(Place) -> bool) -> BTreeSet<JobId> {
        ids.iter().copied().filter(|id| self.jobs.get(id).is_some_and(|job| place(job.place))).collect()
    }

    fn all(&self, place: impl Fn(Place) -> bool) -> BTreeSet<JobId> {
        self.jobs.iter().filter(|(_, job)| place(job.place)).map(|(id, _)| *id).collect()
    }

    fn job(&mut self, id: JobId) -> &mut Job {
        self.jobs.get_mut(&id).unwrap_or_else(|| panic!("nobody enqueued {id}"))
    }

    pub(super) fn held(&self, token: Uuid) -> BTreeSet<JobId> {
        self.all(|place| place == Place::Running(token))
    }

    /// Whether this lease may be settled as a whole: what it has left is at its first attempt, if it has anything left.
    pub(super) fn may_be_whole(&self, token: Uuid) -> bool {
        self.held(token).iter().all(|id| self.jobs[id].attempts == 1)
    }

    pub(super) fn enqueue(&mut self, id: JobId, lane: usize, later: bool) -> Result<(), String> {
        let place = if later { Place::Scheduled { due: false } } else { Place::Ready(self.now) };
        let job = Job { place, lane, attempts: 0, crashes: 0, failures: 0, born: self.now, in_day: self.today, late: None };
        match self.jobs.insert(id, job) {
            None => Ok(()),
            Some(_) => Err(format!("{id} was given out twice")),
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

    /// Of all leases there ever were.
    pub(super) fn tokens(&self) -> Vec<Uuid> {
        self.holders.keys().copied().collect()
    }

    /// A claim took these: as many as there was room for, lane by lane in this order, and in each those that came first.
    pub(super) fn claim(&mut self, worker: Uuid, mut room: usize, lease: &Lease, lanes: &[(usize, bool)]) -> Result<(), String> {
        let taken: BTreeSet<JobId> = lease.ids().into_iter().collect();
        if taken.len() != lease.jobs.len() {
            return Err("a job was claimed twice in one claim".to_owned());
        }
        let mut seen = BTreeSet::new();
        for (lane, solo) in lanes {
            let mut waiting: Vec<(usize, JobId)> = Vec::new();
            for (id, job) in &self.jobs {
                if let (Place::Ready(since), true) = (job.place, job.lane == *lane && (job.crashes > 0) == *solo) {
                    waiting.push((since, *id));
                }
            }
            waiting.sort_unstable();
            let (first, rest): (Vec<_>, Vec<_>) = waiting.iter().partition(|(_, id)| taken.contains(id));
            if first.len() != room.min(waiting.len()) {
                return Err(format!("of {waiting:?} in lane {lane} (solo: {solo}), with room for {room}, it took {first:?}"));
            }
            if first.last().zip(rest.first()).is_some_and(|((taken, _), (left, _))| taken > left) {
                return Err(format!("it took {first:?} and left {rest:?}"));
            }
            room -= first.len();
            seen.extend(first.into_iter().map(|(_, id)| id));
        }
        if seen != taken {
            return Err(format!("it took {:?}, which did not wait", taken.difference(&seen)));
        }
        for held in &lease.jobs {
            let job = self.job(held.id);
            job.attempts += 1;
            job.place = Place::Running(lease.token);
            if (job.attempts, job.crashes) != (held.attempts, held.crashes) {
                return Err(format!("it said {held:?} of {job:?}"));
            }
        }
        self.holders.insert(lease.token, worker);
        Ok(())
    }

    /// What a settle refuses; the rest takes effect.
    pub(super) fn settle(&mut self, said: &[Said], whole: &[Uuid]) -> BTreeSet<Refused> {
        let mut refused = BTreeSet::new();
        for one in said {
            if self.jobs.get(&one.job.id).is_some_and(|job| job.place == Place::Running(one.token)) {
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
                self.job(id).place = Place::Completed { output: false };
            }
        }
        refused
    }

    fn verdict(&mut self, id: JobId, verdict: &str) {
        let job = self.job(id);
        job.place = match verdict {
            "plain" => Place::Completed { output: false },
            "complete" => Place::Completed { output: true },
            "cancel" => Place::Cancelled,
            "forget" => Place::Gone,
            "dead" => Place::Dead,
            "release" => Place::Ready(job.born),
            "retry" | "snooze" => Place::Scheduled { due: false },
            other => panic!("no verdict: {other}"),
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

    /// How many jobs come back, and how many of them are dead.
    pub(super) fn recover(&mut self) -> (usize, usize) {
        let silent: Vec<Uuid> = self.holders.iter().filter(|(_, worker)| !self.alive.contains(worker)).map(|(token, _)| *token).collect();
        let ids: Vec<JobId> = silent.iter().flat_map(|token| self.held(*token)).collect();
        let now = self.now;
        let mut convicted = 0;
        for id in &ids {
            let job = self.job(*id);
            job.crashes += 1;
            job.failures += 1;
            job.place = if job.crashes < CONVICTED { Place::Ready(now) } else { Place::Dead };
            convicted += usize::from(job.crashes >= CONVICTED);
        }
        (ids.len(), convicted)
    }

    /// It is to begin within an hour.
    pub(super) fn let_expire(&mut self, id: JobId) {
        self.job(id).late = Some(false);
    }

    /// Those that have a time by which they are to begin, and are there.
    pub(super) fn expiring(&self) -> BTreeSet<JobId> {
        self.jobs.iter().filter(|(_, job)| job.late.is_some() && job.place != Place::Gone).map(|(id, _)| *id).collect()
    }

    pub(super) fn make_late(&mut self, ids: &[JobId]) {
        for id in ids {
            self.job(*id).late = Some(true);
        }
    }

    /// Those that are late.
    pub(super) fn late(&self) -> BTreeSet<JobId> {
        self.expiring().into_iter().filter(|id| self.jobs[id].late == Some(true)).collect()
    }

    /// What waits, has not begun and is late is over; returns how many.
    pub(super) fn expire_due(&mut self) -> usize {
        let waits = |job: &Job| matches!(job.place, Place::Ready(_) | Place::Scheduled { .. }) && job.attempts == 0 && job.crashes == 0;
        let over: BTreeSet<JobId> = self.late().into_iter().filter(|id| waits(&self.jobs[id])).collect();
        self.put(&over, Place::Expired);
        over.len()
    }

    /// What a holder does not begin is over if it is late and never began, and else goes back; returns what is refused, and how many are over.
    pub(super) fn expire_held(&mut self, said: &[Said]) -> (BTreeSet<Refused>, usize) {
        let (mut refused, mut over) = (BTreeSet::new(), 0);
        for one in said {
            let id = one.job.id;
            match self.jobs.get(&id) {
                Some(job) if job.place == Place::Running(one.token) => {
                    let expires = (job.late, job.attempts, job.crashes) == (Some(true), 1, 0);
                    self.verdict(id, "release");
                    if expires {
                        self.job(id).place = Place::Expired;
                        over += 1;
                    }
                }
                _ => drop(refused.insert((one.token, Some(id)))),
            }
        }
        (refused, over)
    }

    /// Which of them the statement chose is not ours to say, only how many.
    pub(super) fn promote(&mut self, most: usize, chosen: &BTreeSet<JobId>) -> Result<(), String> {
        let due = self.all(|place| place == Place::Scheduled { due: true });
        if chosen.len() != due.len().min(most) || !chosen.is_subset(&due) {
            return Err(format!("of {due:?} it promoted {chosen:?}, at most {most}"));
        }
        for id in chosen {
            let now = self.now;
            self.job(*id).place = Place::Ready(now);
        }
        Ok(())
    }

    pub(super) fn make_due(&mut self, id: JobId) {
        let job = self.job(id);
        if matches!(job.place, Place::Scheduled { .. }) {
            job.place = Place::Scheduled { due: true };
        }
    }

    /// Operators' requeue of what is dead or over.
    pub(super) fn bring_back(&mut self, ids: &BTreeSet<JobId>) {
        let now = self.now;
        for id in ids {
            let job = self.job(*id);
            (job.place, job.attempts, job.crashes, job.late) = (Place::Ready(now), 0, 0, None);
        }
    }

    pub(super) fn put(&mut self, ids: &BTreeSet<JobId>, place: Place) {
        for id in ids {
            self.job(*id).place = place;
        }
    }

    /// The jobs whose history goes with the day; the rest outlives it.
    pub(super) fn drop_day(&mut self) -> usize {
        if !std::mem::replace(&mut self.today, false) {
            return 0;
        }
        let over = self.prune(true);
        for job in self.jobs.values_mut() {
            job.in_day = false;
        }
        over
    }

    /// The history of no day goes, or that of today; returns of how many jobs.
    pub(super) fn prune(&mut self, in_day: bool) -> usize {
        let over = self.all(|place| matches!(place, Place::Completed { .. } | Place::Cancelled | Place::Expired));
        let over: BTreeSet<JobId> = over.into_iter().filter(|id| self.jobs[id].in_day == in_day).collect();
        self.put(&over, Place::Gone);
        over.len()
    }

    /// Whether today is made: not while any of its rows are where rows of no day are.
    pub(super) fn add_days(&mut self) -> bool {
        let made = !self.today && self.jobs.values().all(|job| job.in_day || job.place == Place::Gone);
        self.today |= made;
        made
    }

    /// What the tables must hold, a line a job.
    pub(super) fn rows(&self, lanes: &BTreeMap<i64, (usize, bool)>) -> Vec<String> {
        let lane = |job: &Job| lanes.iter().find(|(_, of)| **of == (job.lane, job.crashes > 0)).map_or(0, |(lane, _)| *lane);
        let present = self.jobs.iter().filter(|(_, job)| job.place != Place::Gone);
        let row = |(id, job): (&JobId, &Job)| {
            let (attempts, crashes, failures) = (job.attempts, job.crashes, job.failures);
            match job.place {
                Place::Ready(_) => format!("{id} ready lane={} {attempts} {crashes} failures={failures}", lane(job)),
                Place::Scheduled { due } => {
                    format!("{id} scheduled lane={} {attempts} {crashes} due={due} failures={failures}", lane(job))
                }
                Place::Running(token) => format!("{id} running {token} {attempts} {crashes} failures={failures}"),
                Place::Completed { output } => format!("{id} completed {attempts} output={output} failures={failures}"),
                Place::Expired => format!("{id} expired {attempts} output=false failures={failures}"),
                Place::Cancelled => format!("{id} cancelled {attempts} output=false failures={failures}"),
                Place::Dead => format!("{id} dead lane={} {attempts} {crashes} failures={failures}", lane(job)),
                Place::Gone => String::new(),
            }
        };
        present.map(row).collect()
    }

    /// What an operator must see: id, state, queue, attempts.
    pub(super) fn seen(&self) -> Vec<(JobId, String, String, i16)> {
        let present = self.jobs.iter().filter(|(_, job)| job.place != Place::Gone);
        let state = |place| match place {
            Place::Ready(_) => "ready",
            Place::Scheduled { .. } => "scheduled",
            Place::Running(_) => "running",
            Place::Completed { .. } => "completed",
            Place::Cancelled => "cancelled",
            Place::Expired => "expired",
            Place::Dead => "dead",
            Place::Gone => "gone",
        };
        present.map(|(id, job)| (*id, state(job.place).to_owned(), LANES[job.lane].0.to_owned(), job.attempts)).collect()
    }
}
