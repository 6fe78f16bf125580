//! State of the model: the tables, the contents that would survive a failover, and the local state of each process.

/// Number of jobs. A partially settled lease requires at least two.
pub(super) const JOBS: usize = 2;

/// Number of workers. With at least two, a statement of one worker can arrive after the other worker has claimed the same jobs.
pub(super) const WORKERS: usize = 2;

/// Set of jobs, with one bit per job.
pub(super) type Ids = u8;

/// Token of a claim. Real tokens are random. The model reuses tokens that no longer occur in the state, which keeps the number of states
/// finite. See [`State::rename`].
pub(super) type Token = u8;

/// Set of all jobs.
pub(super) const ALL: Ids = (1 << JOBS) - 1;

/// Contents of the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Db {
    /// Number of entries in `ready`, per job.
    pub(super) ready: [u8; JOBS],
    /// Number of entries in `done`, per job.
    pub(super) done: [u8; JOBS],
    pub(super) leases: Vec<LeaseRow>,
    /// Next value of a database sequence. Only broken variants use the sequence and the attempts below.
    pub(super) next: u8,
    pub(super) attempts: [u8; JOBS],
}

/// Row of the table `lease`, as modelled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LeaseRow {
    pub(super) claim: Claim,
    /// Worker whose heartbeat keeps the lease alive. `None` after the heartbeat has expired.
    pub(super) worker: Option<usize>,
    pub(super) ids: Ids,
}

/// Identity of a claim: its token, and one number per job. Broken variants distinguish claims by these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) token: Token,
    pub(super) number: [u8; JOBS],
}

/// Verdict that a worker has sent for jobs of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SentVerdict {
    pub(super) claim: Claim,
    pub(super) ids: Ids,
    pub(super) verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    Complete,
    Release,
}

/// Local state of a worker, and whether the worker's heartbeat row is alive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) up: bool,
    /// Whether the worker's heartbeat row has not expired.
    pub(super) alive: bool,
    /// Running jobs, with their claims.
    pub(super) held: Vec<(Claim, Ids)>,
    /// Tokens of claims without a response.
    pub(super) strays: Vec<Token>,
    /// Verdict that the worker has sent and that has no response yet, if any.
    pub(super) sent: Option<SentVerdict>,
}

/// Recovery that has executed the first of its two statements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recovery {
    pub(super) locked: bool,
    /// Leases with their jobs, as read by the first statement.
    pub(super) found: Vec<(Token, Ids)>,
}

/// Complete state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// Tables as visible to all sessions.
    pub(super) db: Db,
    /// Tables as synced to disk, which survive a failover.
    pub(super) synced: Db,
    pub(super) workers: [Process; WORKERS],
    /// Abandoned claims that the server may still execute, with their workers.
    pub(super) late_claims: Vec<(usize, Token)>,
    /// Abandoned verdicts that may still take effect.
    pub(super) late_settles: Vec<SentVerdict>,
    pub(super) recovery: Option<Recovery>,
    /// Jobs whose enqueue was acknowledged.
    pub(super) enqueued: Ids,
    /// Jobs whose completion was acknowledged.
    pub(super) completed: Ids,
    /// Whether a verdict took effect under the lease of another claim.
    pub(super) wrong: bool,
    /// Whether a verdict was rejected for at least one of its jobs.
    pub(super) refused: bool,
    /// Number of faults that may still occur.
    pub(super) faults: u8,
}

/// Returns the jobs in a set.
pub(super) fn jobs(ids: Ids) -> impl Iterator<Item = usize> {
    (0..JOBS).filter(move |job| ids & 1 << job != 0)
}

/// Returns the non-empty subsets of a set.
pub(super) fn parts(ids: Ids) -> impl Iterator<Item = Ids> {
    (1..=ids).filter(move |part| part & !ids == 0)
}

impl Db {
    pub(super) fn waiting(&self) -> Ids {
        (0..JOBS).filter(|job| self.ready[*job] > 0).fold(0, |ids, job| ids | 1 << job)
    }

    /// Returns the number of leases that contain a job.
    pub(super) fn leased(&self, job: usize) -> usize {
        self.leases.iter().filter(|row| row.ids & 1 << job != 0).count()
    }

    /// Returns the number of entries of a job in all tables.
    pub(super) fn places(&self, job: usize) -> usize {
        usize::from(self.ready[job]) + usize::from(self.done[job]) + self.leased(job)
    }

    pub(super) fn make_ready(&mut self, ids: Ids) {
        for job in jobs(ids) {
            self.ready[job] += 1;
        }
    }

    fn normalize(&mut self) {
        self.leases.retain(|row| row.ids != 0);
        self.leases.sort_unstable_by_key(|row| (row.claim.token, row.ids));
    }
}

impl State {
    pub(super) fn new(faults: u8) -> Self {
        let worker = || Process { up: true, alive: true, held: Vec::new(), strays: Vec::new(), sent: None };
        Self {
            db: Db::default(),
            synced: Db::default(),
            workers: std::array::from_fn(|_| worker()),
            late_claims: Vec::new(),
            late_settles: Vec::new(),
            recovery: None,
            enqueued: 0,
            completed: 0,
            wrong: false,
            refused: false,
            faults,
        }
    }

    /// Returns references to all tokens in the state.
    fn tokens(&mut self) -> Vec<&mut Token> {
        let mut all: Vec<&mut Token> = Vec::new();
        for worker in &mut self.workers {
            all.extend(worker.held.iter_mut().map(|(claim, _)| &mut claim.token));
            all.extend(&mut worker.strays);
            all.extend(worker.sent.iter_mut().map(|sent| &mut sent.claim.token));
        }
        all.extend(self.late_claims.iter_mut().map(|(_, token)| token));
        all.extend(self.late_settles.iter_mut().map(|sent| &mut sent.claim.token));
        all.extend(self.db.leases.iter_mut().chain(&mut self.synced.leases).map(|row| &mut row.claim.token));
        all.extend(self.recovery.iter_mut().flat_map(|recovery| recovery.found.iter_mut().map(|(token, _)| token)));
        all
    }

    /// Returns an unused token.
    pub(super) fn fresh(&mut self) -> Token {
        let known: Vec<Token> = self.tokens().into_iter().map(|token| *token).collect();
        (0..=u8::MAX).find(|token| !known.contains(token)).unwrap_or_default()
    }

    /// Renumbers tokens in the order of their occurrence, so that states that differ only in their tokens are equal.
    pub(super) fn rename(&mut self) {
        for worker in &mut self.workers {
            worker.held.retain(|(_, ids)| *ids != 0);
        }
        self.db.normalize();
        self.synced.normalize();
        let mut order: Vec<Token> = Vec::new();
        for token in self.tokens() {
            let name = order.iter().position(|known| known == token).unwrap_or_else(|| {
                order.push(*token);
                order.len() - 1
            });
            *token = u8::try_from(name).unwrap_or(u8::MAX);
        }
        self.db.normalize();
        self.synced.normalize();
    }
}
