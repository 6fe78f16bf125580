//! Steps of the model and their effects. A statement is one step, because it is one transaction. A recovery consists of two statements,
//! so it is two steps.

use super::state::{ALL, Claim, Ids, JOBS, LeaseRow, Process, Recovery, SentVerdict, State, Token, Verdict, WORKERS, jobs, parts};

/// Protocol of the product, or a broken variant of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Ours,
    /// A verdict takes effect if the job is in any lease, including the lease of another claim.
    SettlesById,
    /// Claims are identified by the attempt numbers of their jobs.
    SettlesByAttempt,
    /// Claims are identified by numbers from a database sequence instead of random tokens.
    SequenceTokens,
    /// Recovery reads the jobs of a lease before it locks the lease.
    RecoversAtOnce,
    /// A worker forgets claims without a response.
    ForgetsStrays,
    /// A worker gives back a claim without a response only once, although the server may still execute the claim.
    GivesBackOnce,
    /// A worker that cannot send heartbeats keeps running while its heartbeat row expires.
    NeverFences,
}

/// Step of the model: a statement, a local action of a worker, or a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Enqueue(usize),
    Claim(usize, Ids, Delivery),
    /// The server executes an abandoned claim for the given jobs, or drops the claim (`None`).
    LateClaim(usize, Option<Ids>),
    GiveBack(usize),
    /// A worker forgets its claims without a response after their deadline. By then, the jobs that the worker has given back are on disk,
    /// and the server can no longer execute the claims.
    DropStrays(usize),
    /// A worker settles jobs of one of its claims. Fields: worker, index of the claim, jobs, verdict, delivery.
    Settle(usize, usize, Ids, Verdict, Delivery),
    Retry(usize, Delivery),
    LateSettle(usize, bool),
    /// First statement of a recovery. `TakeBack` is the second statement.
    Find,
    TakeBack,
    AbortRecovery,
    /// Syncs the tables to disk.
    Sync,
    /// Another server takes over with the contents of the disk.
    Failover,
    Crash(usize),
    Restart(usize),
    /// A worker that could not send heartbeats abandons its jobs.
    Fence(usize),
    /// The heartbeat row of a worker expires.
    Expire(usize),
    /// A worker notices that its heartbeat row has expired, and registers again.
    Notice(usize),
}

/// Fate of a request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Delivery {
    Answered,
    /// The request takes effect, but the response is lost.
    Unanswered,
    /// The worker gives up before the request takes effect.
    Late,
}

const DELIVERIES: [Delivery; 3] = [Delivery::Answered, Delivery::Unanswered, Delivery::Late];

/// Variant of the protocol and its environment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protocol {
    pub(super) variant: Variant,
    pub(super) faults: u8,
    /// Whether clocks are accurate. If so, a worker's heartbeat row expires only after the worker has abandoned its jobs, and no commit
    /// is lost.
    pub(super) punctual: bool,
}

impl Step {
    /// Returns whether the step is a fault. The number of faults on a path is limited. From every state, the jobs must be able to complete
    /// without another fault.
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
    /// Returns the steps that are possible in a state.
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
        for (at, sent) in state.late_settles.iter().enumerate() {
            steps.push(Step::LateSettle(at, false));
            if !state.is_locked(sent.claim.token) {
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
            // The jobs of a late claim are chosen only when the server executes the claim, so late claims for several jobs are left out.
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
        if let Some(sent) = process.sent {
            steps.extend(
                DELIVERIES
                    .map(|delivery| Step::Retry(worker, delivery))
                    .into_iter()
                    .filter(|step| state.may_settle(step, sent.claim.token)),
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
        let busy = !process.held.is_empty() || process.sent.is_some();
        if process.alive && busy && self.punctual && self.variant != Variant::NeverFences {
            steps.push(Step::Fence(worker));
        } else if process.alive {
            steps.push(Step::Expire(worker));
        }
        steps.push(Step::Crash(worker));
    }

    /// Returns the state after a step.
    pub(super) fn after(self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        next.faults -= u8::from(step.is_fault(state));
        next.apply(self.variant, step);
        next.rename();
        next
    }
}

impl State {
    fn is_locked(&self, token: Token) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.locked && recovery.found.iter().any(|(found, _)| *found == token))
    }

    /// Returns whether the server may still execute the claim with this token, or has stored the lease of the claim.
    fn is_known(&self, token: Token) -> bool {
        let leases = self.db.leases.iter().chain(&self.synced.leases);
        self.late_claims.iter().any(|(_, late)| *late == token) || leases.into_iter().any(|row| row.claim.token == token)
    }

    /// Returns whether a settle may run now. A settle must wait for a recovery that has locked its lease. A late settle may be sent at
    /// any time, because the server executes it later.
    fn may_settle(&self, step: &Step, token: Token) -> bool {
        let late = matches!(step, Step::Settle(.., Delivery::Late) | Step::Retry(_, Delivery::Late));
        late || !self.is_locked(token)
    }

    fn apply(&mut self, variant: Variant, step: Step) {
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
                let sent = SentVerdict { claim: *claim, ids, verdict };
                self.workers[worker].sent = Some(sent);
                self.send(variant, worker, sent, delivery);
            }
            Step::Retry(worker, delivery) => {
                if let Some(sent) = self.workers[worker].sent {
                    self.send(variant, worker, sent, delivery);
                }
            }
            Step::LateSettle(at, happens) => {
                let sent = self.late_settles.remove(at);
                if happens {
                    self.settle(variant, sent);
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
            Step::Crash(worker) => self.workers[worker] = Process { up: false, ..self.workers[worker].without_local_state() },
            Step::Restart(worker) => self.workers[worker] = Process { up: true, alive: true, ..self.workers[worker].without_local_state() },
            Step::Fence(worker) => self.workers[worker] = self.workers[worker].without_local_state(),
            Step::Expire(worker) => {
                self.workers[worker].alive = false;
                for row in self.db.leases.iter_mut().chain(&mut self.synced.leases).filter(|row| row.worker == Some(worker)) {
                    row.worker = None;
                }
                // Drops the worker's late claims, because a claim requires a heartbeat row that has not expired.
                self.late_claims.retain(|(late, _)| *late != worker);
            }
            Step::Notice(worker) => self.workers[worker] = Process { alive: true, ..self.workers[worker].without_local_state() },
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

    /// Claims jobs (ready -> lease). Does not sync to disk.
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
        self.db.leases.push(LeaseRow { claim, worker: Some(worker), ids });
        claim
    }

    fn give_back(&mut self, variant: Variant, worker: usize) {
        let strays = self.workers[worker].strays.clone();
        let (back, kept): (Vec<LeaseRow>, Vec<LeaseRow>) = self.db.leases.drain(..).partition(|row| strays.contains(&row.claim.token));
        self.db.leases = kept;
        for row in back {
            self.db.make_ready(row.ids);
        }
        if variant == Variant::GivesBackOnce {
            self.workers[worker].strays.clear();
        }
    }

    fn send(&mut self, variant: Variant, worker: usize, sent: SentVerdict, delivery: Delivery) {
        match delivery {
            Delivery::Late => self.late_settles.push(sent),
            Delivery::Unanswered => drop(self.settle(variant, sent)),
            Delivery::Answered => {
                let counted = self.settle(variant, sent);
                if sent.verdict == Verdict::Complete {
                    self.completed |= counted;
                }
                self.workers[worker].sent = None;
            }
        }
    }

    /// Applies a verdict (lease -> done | ready) and syncs to disk. Returns the jobs for which the verdict took effect.
    fn settle(&mut self, variant: Variant, sent: SentVerdict) -> Ids {
        let mut counted = 0;
        for job in jobs(sent.ids) {
            let fits = |row: &&mut LeaseRow| match variant {
                Variant::SettlesById => true,
                Variant::SettlesByAttempt | Variant::SequenceTokens => row.claim.number[job] == sent.claim.number[job],
                _ => row.claim.token == sent.claim.token,
            };
            let Some(row) = self.db.leases.iter_mut().filter(|row| row.ids & 1 << job != 0).find(fits) else { continue };
            self.wrong |= row.claim.token != sent.claim.token;
            row.ids &= !(1 << job);
            counted |= 1 << job;
            match sent.verdict {
                Verdict::Complete => self.db.done[job] += 1,
                Verdict::Release => self.db.ready[job] += 1,
            }
        }
        self.refused |= counted != sent.ids;
        self.synced = self.db.clone();
        counted
    }

    /// Executes the second statement of a recovery (lease -> ready). Releases the jobs that the found leases contain now. `RecoversAtOnce`
    /// instead releases the jobs that the first statement read. Does not sync to disk.
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
    /// Returns the process without its claims and verdicts.
    fn without_local_state(&self) -> Self {
        Self { held: Vec::new(), strays: Vec::new(), sent: None, ..*self }
    }
}
