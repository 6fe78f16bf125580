//! State of the model: tables, the part of them that a failover would keep, and the local state of each process.

/// Two jobs: the minimum for a partially settled lease.
pub(super) const JOBS: usize = 2;

/// Two workers: the minimum for one to be late and another to have replaced it.
pub(super) const WORKERS: usize = 2;

/// Set of jobs, one bit each.
pub(super) type Ids = u8;

/// Identifies a claim. Tokens are random, so a token that no process knows any more can be reused: see [`State::rename`].
pub(super) type Token = u8;

/// The set of all jobs.
pub(super) const ALL: Ids = (1 << JOBS) - 1;

/// The tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Db {
    /// Number of entries in `ready`, per job.
    pub(super) ready: [u8; JOBS],
    /// Number of entries in `done`, per job.
    pub(super) done: [u8; JOBS],
    pub(super) leases: Vec<LeaseRow>,
    /// Next value of a database sequence, and charged attempts per job. Only broken variants read them.
    pub(super) next: u8,
    pub(super) attempts: [u8; JOBS],
}

/// A row of `lease`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LeaseRow {
    pub(super) claim: Claim,
    /// Worker whose heartbeat keeps the lease. `None` after the heartbeat has expired.
    pub(super) worker: Option<usize>,
    pub(super) ids: Ids,
}

/// Identifies a claim: its token, and per job the number by which a broken variant distinguishes claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) token: Token,
    pub(super) number: [u8; JOBS],
}

/// A verdict on jobs.
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

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) up: bool,
    /// Whether its heartbeat has not expired.
    pub(super) alive: bool,
    /// Running jobs and the claim they run under.
    pub(super) held: Vec<(Claim, Ids)>,
    /// Claims without a reply.
    pub(super) strays: Vec<Token>,
    /// Verdicts without a reply.
    pub(super) sent: Option<SentVerdict>,
}

/// A recovery between its two statements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recovery {
    pub(super) locked: bool,
    /// Each lease, and its jobs at the time it was found.
    pub(super) found: Vec<(Token, Ids)>,
}

/// The whole state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// The tables as visible to all sessions.
    pub(super) db: Db,
    /// The tables as synced: what remains after a failover.
    pub(super) synced: Db,
    pub(super) workers: [Process; WORKERS],
    /// Claims abandoned by their worker that the server may still execute.
    pub(super) late_claims: Vec<(usize, Token)>,
    /// Settles abandoned by their worker that the server may still execute.
    pub(super) late_settles: Vec<SentVerdict>,
    pub(super) recovery: Option<Recovery>,
    /// Jobs whose enqueue was acknowledged.
    pub(super) enqueued: Ids,
    /// Jobs whose completion was acknowledged.
    pub(super) completed: Ids,
    /// Whether a verdict about another claim took effect, and whether one of a late worker was refused.
    pub(super) wrong: bool,
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

    /// Returns every occurrence of a token.
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

    /// Renumbers tokens in the order of their occurrence, so that states that differ only in token names are equal.
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
