//! What can happen, and what becomes of it. A statement is one step, because it is one transaction; recovery is two statements.

use super::state::{ALL, Claim, Ids, JOBS, Process, Recovery, Row, Said, State, Token, Verdict, WORKERS, jobs, parts};

/// How a protocol could be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Ours,
    /// A verdict needs no lease of its own, only that the job has one.
    SettlesById,
    /// Claims are told apart by the attempts of their jobs.
    SettlesByAttempt,
    /// Claims are told apart by a sequence of the database.
    SequenceTokens,
    /// What a lease holds is read before it is locked.
    RecoversAtOnce,
    /// A claim without an answer is forgotten.
    ForgetsStrays,
    /// A claim without an answer is given back once, though the server may be at work on it still.
    GivesBackOnce,
    /// A worker that could not beat goes on while its row expires.
    GoesOn,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Enqueue(usize),
    Claim(usize, Ids, Delivery),
    /// A claim happens that its worker has given up, or it never does.
    LateClaim(usize, Option<Ids>),
    GiveBack(usize),
    /// The claims without an answer are past their time: what was given back is on disk, and nothing is under way.
    DropStrays(usize),
    /// On that lease of those it holds.
    Settle(usize, usize, Ids, Verdict, Delivery),
    Retry(usize, Delivery),
    LateSettle(usize, bool),
    /// The two statements of a recovery.
    Find,
    TakeBack,
    AbortRecovery,
    /// Everything so far reaches the disk.
    Sync,
    /// Another server takes over, with what is on disk.
    Failover,
    Crash(usize),
    Restart(usize),
    /// A worker that could not beat drops what it does.
    Fence(usize),
    /// A heartbeat row expires.
    Expire(usize),
    /// A worker learns that its row has expired, and starts over under another.
    Notice(usize),
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Delivery {
    Answered,
    /// It happened, but the answer is lost.
    Unanswered,
    /// The worker gives up before it has happened.
    Late,
}

const DELIVERIES: [Delivery; 3] = [Delivery::Answered, Delivery::Unanswered, Delivery::Late];

/// The protocol, or a broken one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protocol {
    pub(super) variant: Variant,
    pub(super) faults: u8,
    /// Whether clocks can be trusted: a worker's row expires only after it has fenced itself. Then no commit is lost either.
    pub(super) punctual: bool,
}

impl Step {
    /// Whether it is one of those that need not ever happen.
    pub(super) fn is_fault(self, state: &State) -> bool {
        match self {
            Self::Claim(.., delivery) | Self::Settle(.., delivery) | Self::Retry(_, delivery) => delivery != Delivery::Answered,
            Self::AbortRecovery | Self::Failover | Self::Crash(_) | Self::Fence(_) => true,
            Self::Expire(worker) => state.workers[worker].up,
            _ => false,
        }
    }
}

impl Protocol {
    /// What can happen next.
    pub(super) fn steps(self, state: &State) -> Vec<Step> {
        let mut steps: Vec<Step> = jobs(ALL & !state.enqueued).map(Step::Enqueue).collect();
        for worker in 0..WORKERS {
            self.steps_of(state, worker, &mut steps);
        }
        for (at, (worker, _)) in state.late_claims.iter().enumerate() {
            steps.push(Step::LateClaim(at, None));
            if state.workers[*worker].alive {
                steps.extend(parts(state.db.waiting()).map(|ids| Step::LateClaim(at, Some(ids))));
            }
        }
        for (at, said) in state.late_settles.iter().enumerate() {
            steps.push(Step::LateSettle(at, false));
            if !state.is_locked(said.claim.token) {
                steps.push(Step::LateSettle(at, true));
            }
        }
        match &state.recovery {
            None if state.db.leases.iter().any(|row| row.worker.is_none()) => steps.push(Step::Find),
            None => {}
            Some(_) => steps.extend([Step::TakeBack, Step::AbortRecovery]),
        }
        if state.db != state.synced {
            steps.push(Step::Sync);
            if !self.punctual {
                steps.push(Step::Failover);
            }
        }
        steps.retain(|step| state.faults > 0 || !step.is_fault(state));
        steps
    }

    fn steps_of(self, state: &State, worker: usize, steps: &mut Vec<Step>) {
        let process = &state.workers[worker];
        if !process.up {
            steps.push(if process.alive { Step::Expire(worker) } else { Step::Restart(worker) });
            return;
        }
        if process.alive {
            let claims = parts(state.db.waiting()).flat_map(|ids| DELIVERIES.map(|delivery| Step::Claim(worker, ids, delivery)));
            // What a late claim would take is not known yet.
            steps.extend(claims.filter(|step| !matches!(step, Step::Claim(_, ids, Delivery::Late) if ids & (ids - 1) != 0)));
        } else {
            steps.push(Step::Notice(worker));
        }
        if !process.strays.is_empty() {
            steps.push(Step::GiveBack(worker));
            if process.strays.iter().all(|token| !state.is_known(*token)) {
                steps.push(Step::DropStrays(worker));
            }
        }
        if let Some(said) = process.said {
            steps.extend(
                DELIVERIES
                    .map(|delivery| Step::Retry(worker, delivery))
                    .into_iter()
                    .filter(|step| state.may_settle(step, said.claim.token)),
            );
        } else {
            for (at, (claim, held)) in process.held.iter().enumerate() {
                for ids in parts(*held) {
                    let fates = |verdict| DELIVERIES.map(|delivery| Step::Settle(worker, at, ids, verdict, delivery));
                    let all = [Verdict::Complete, Verdict::Release].into_iter().flat_map(fates);
                    steps.extend(all.filter(|step| state.may_settle(step, claim.token)));
                }
            }
        }
        let busy = !process.held.is_empty() || process.said.is_some();
        if process.alive && busy && self.punctual && self.variant != Variant::GoesOn {
            steps.push(Step::Fence(worker));
        } else if process.alive {
            steps.push(Step::Expire(worker));
        }
        steps.push(Step::Crash(worker));
    }

    /// What becomes of it.
    pub(super) fn after(self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        next.faults -= u8::from(step.is_fault(state));
        next.happen(self.variant, step);
        next.rename();
        next
    }
}

impl State {
    fn is_locked(&self, token: Token) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.locked && recovery.found.iter().any(|(found, _)| *found == token))
    }

    /// Whether a claim is under way, or has left a lease.
    fn is_known(&self, token: Token) -> bool {
        let leases = self.db.leases.iter().chain(&self.synced.leases);
        self.late_claims.iter().any(|(_, late)| *late == token) || leases.into_iter().any(|row| row.claim.token == token)
    }

    /// A settle waits for a recovery that has locked its lease; it need not have begun to be late.
    fn may_settle(&self, step: &Step, token: Token) -> bool {
        let late = matches!(step, Step::Settle(.., Delivery::Late) | Step::Retry(_, Delivery::Late));
        late || !self.is_locked(token)
    }

    fn happen(&mut self, variant: Variant, step: Step) {
        match step {
            Step::Enqueue(job) => {
                self.db.ready[job] += 1;
                self.enqueued |= 1 << job;
                self.synced = self.db.clone();
            }
            Step::Claim(worker, ids, delivery) => self.claim(variant, worker, ids, delivery),
            Step::LateClaim(at, ids) => {
                let (worker, token) = self.late_claims.remove(at);
                if let Some(ids) = ids {
                    self.take(variant, worker, token, ids);
                }
            }
            Step::GiveBack(worker) => self.give_back(variant, worker),
            Step::DropStrays(worker) => self.workers[worker].strays.clear(),
            Step::Settle(worker, at, ids, verdict, delivery) => {
                let (claim, held) = &mut self.workers[worker].held[at];
                *held &= !ids;
                let said = Said { claim: *claim, ids, verdict };
                self.workers[worker].said = Some(said);
                self.send(variant, worker, said, delivery);
            }
            Step::Retry(worker, delivery) => {
                if let Some(said) = self.workers[worker].said {
                    self.send(variant, worker, said, delivery);
                }
            }
            Step::LateSettle(at, happens) => {
                let said = self.late_settles.remove(at);
                if happens {
                    self.settle(variant, said);
                }
            }
            Step::Find => {
                let silent = self.db.leases.iter().filter(|row| row.worker.is_none()).map(|row| (row.claim.token, row.ids)).collect();
                self.recovery = Some(Recovery { locked: variant != Variant::RecoversAtOnce, found: silent });
            }
            Step::TakeBack => self.take_back(variant),
            Step::AbortRecovery => self.recovery = None,
            Step::Sync => self.synced = self.db.clone(),
            Step::Failover => {
                self.db = self.synced.clone();
                self.recovery = None;
                self.late_claims.clear();
                self.late_settles.clear();
            }
            Step::Crash(worker) => self.workers[worker] = Process { up: false, ..self.workers[worker].emptied() },
            Step::Restart(worker) => self.workers[worker] = Process { up: true, alive: true, ..self.workers[worker].emptied() },
            Step::Fence(worker) => self.workers[worker] = self.workers[worker].emptied(),
            Step::Expire(worker) => {
                self.workers[worker].alive = false;
                for row in self.db.leases.iter_mut().chain(&mut self.synced.leases).filter(|row| row.worker == Some(worker)) {
                    row.worker = None;
                }
                // A claim asks for a row that has not expired.
                self.late_claims.retain(|(late, _)| *late != worker);
            }
            Step::Notice(worker) => self.workers[worker] = Process { alive: true, ..self.workers[worker].emptied() },
        }
    }

    fn claim(&mut self, variant: Variant, worker: usize, ids: Ids, delivery: Delivery) {
        let token = self.fresh();
        match delivery {
            Delivery::Answered => {
                let claim = self.take(variant, worker, token, ids);
                self.workers[worker].held.push((claim, ids));
                return;
            }
            Delivery::Unanswered => drop(self.take(variant, worker, token, ids)),
            Delivery::Late => self.late_claims.push((worker, token)),
        }
        if variant != Variant::ForgetsStrays {
            self.workers[worker].strays.push(token);
        }
    }

    /// ready -> lease. Not synced.
    fn take(&mut self, variant: Variant, worker: usize, token: Token, ids: Ids) -> Claim {
        let mut number = [0; JOBS];
        for job in jobs(ids) {
            self.db.ready[job] -= 1;
            if variant == Variant::SettlesByAttempt {
                self.db.attempts[job] += 1;
                number[job] = self.db.attempts[job];
            }
        }
        if variant == Variant::SequenceTokens {
            self.db.next += 1;
            number = [self.db.next; JOBS];
        }
        let claim = Claim { token, number };
        self.db.leases.push(Row { claim, worker: Some(worker), ids });
        claim
    }

    fn give_back(&mut self, variant: Variant, worker: usize) {
        let strays = self.workers[worker].strays.clone();
        let (back, kept): (Vec<Row>, Vec<Row>) = self.db.leases.drain(..).partition(|row| strays.contains(&row.claim.token));
        self.db.leases = kept;
        for row in back {
            self.db.make_ready(row.ids);
        }
        if variant == Variant::GivesBackOnce {
            self.workers[worker].strays.clear();
        }
    }

    fn send(&mut self, variant: Variant, worker: usize, said: Said, delivery: Delivery) {
        match delivery {
            Delivery::Late => self.late_settles.push(said),
            Delivery::Unanswered => drop(self.settle(variant, said)),
            Delivery::Answered => {
                let counted = self.settle(variant, said);
                if said.verdict == Verdict::Complete {
                    self.completed |= counted;
                }
                self.workers[worker].said = None;
            }
        }
    }

    /// lease -> done | ready, synced; returns those that counted.
    fn settle(&mut self, variant: Variant, said: Said) -> Ids {
        let mut counted = 0;
        for job in jobs(said.ids) {
            let fits = |row: &&mut Row| match variant {
                Variant::SettlesById => true,
                Variant::SettlesByAttempt | Variant::SequenceTokens => row.claim.number[job] == said.claim.number[job],
                _ => row.claim.token == said.claim.token,
            };
            let Some(row) = self.db.leases.iter_mut().filter(|row| row.ids & 1 << job != 0).find(fits) else { continue };
            self.wrong |= row.claim.token != said.claim.token;
            row.ids &= !(1 << job);
            counted |= 1 << job;
            match said.verdict {
                Verdict::Complete => self.db.done[job] += 1,
                Verdict::Release => self.db.ready[job] += 1,
            }
        }
        self.refused |= counted != said.ids;
        self.synced = self.db.clone();
        counted
    }

    /// lease -> ready: what is in the leases now, or was when they were found. Not synced.
    fn take_back(&mut self, variant: Variant) {
        let found = self.recovery.take().map(|recovery| recovery.found).unwrap_or_default();
        for (token, seen) in found {
            let Some(at) = self.db.leases.iter().position(|row| row.claim.token == token) else { continue };
            let row = self.db.leases.remove(at);
            self.db.make_ready(if variant == Variant::RecoversAtOnce { seen } else { row.ids });
        }
    }
}

impl Process {
    /// One that knows nothing any more.
    fn emptied(&self) -> Self {
        Self { held: Vec::new(), strays: Vec::new(), said: None, ..*self }
    }
}
