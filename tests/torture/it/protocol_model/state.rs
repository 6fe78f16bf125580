//! What there is: tables, what of them would survive a failover, and what each process believes.

/// Two jobs: the fewest for a lease of which a part is settled.
pub(super) const JOBS: usize = 2;

/// Two workers: the fewest for one to be late and another in its place.
pub(super) const WORKERS: usize = 2;

/// Which jobs, a bit each.
pub(super) type Ids = u8;

/// Names a claim. Random, so one that nobody knows any more is as good as new: names are given out again, see [`State::rename`].
pub(super) type Token = u8;

/// Every job.
pub(super) const ALL: Ids = (1 << JOBS) - 1;

/// The tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Db {
    /// Entries in `ready`, by job.
    pub(super) ready: [u8; JOBS],
    /// Entries in `done`, by job.
    pub(super) done: [u8; JOBS],
    pub(super) leases: Vec<Row>,
    /// What a sequence in the database would give out next; attempts charged, by job. Only broken variants look at them.
    pub(super) next: u8,
    pub(super) attempts: [u8; JOBS],
}

/// A row of `lease`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) claim: Claim,
    /// Whose heartbeat keeps it; nobody's once that has expired.
    pub(super) worker: Option<usize>,
    pub(super) ids: Ids,
}

/// What names a claim: its token, and the number by which a broken variant tells claims apart, for each job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) token: Token,
    pub(super) number: [u8; JOBS],
}

/// A verdict on jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Said {
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
    /// What it runs, and under which claim.
    pub(super) held: Vec<(Claim, Ids)>,
    /// Claims without an answer.
    pub(super) strays: Vec<Token>,
    /// Verdicts without an answer.
    pub(super) said: Option<Said>,
}

/// A recovery between its two statements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recovery {
    pub(super) locked: bool,
    /// Each lease, and what was in it when it was found.
    pub(super) found: Vec<(Token, Ids)>,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// What everybody sees.
    pub(super) db: Db,
    /// What has been synced: what a failover leaves.
    pub(super) synced: Db,
    pub(super) workers: [Process; WORKERS],
    /// Claims that their worker has given up, which the server may be at work on still.
    pub(super) late_claims: Vec<(usize, Token)>,
    /// The same of settles.
    pub(super) late_settles: Vec<Said>,
    pub(super) recovery: Option<Recovery>,
    /// Whose enqueue was acknowledged.
    pub(super) enqueued: Ids,
    /// Whose completion was acknowledged.
    pub(super) completed: Ids,
    /// Whether a verdict counted that was about another claim; whether one of a late worker was refused.
    pub(super) wrong: bool,
    pub(super) refused: bool,
    /// How many more things may go wrong.
    pub(super) faults: u8,
}

/// The jobs in a set.
pub(super) fn jobs(ids: Ids) -> impl Iterator<Item = usize> {
    (0..JOBS).filter(move |job| ids & 1 << job != 0)
}

/// The sets within a set that are not empty.
pub(super) fn parts(ids: Ids) -> impl Iterator<Item = Ids> {
    (1..=ids).filter(move |part| part & !ids == 0)
}

impl Db {
    pub(super) fn waiting(&self) -> Ids {
        (0..JOBS).filter(|job| self.ready[*job] > 0).fold(0, |ids, job| ids | 1 << job)
    }

    /// In how many leases a job is.
    pub(super) fn leased(&self, job: usize) -> usize {
        self.leases.iter().filter(|row| row.ids & 1 << job != 0).count()
    }

    /// In how many places a job is.
    pub(super) fn places(&self, job: usize) -> usize {
        usize::from(self.ready[job]) + usize::from(self.done[job]) + self.leased(job)
    }

    pub(super) fn make_ready(&mut self, ids: Ids) {
        for job in jobs(ids) {
            self.ready[job] += 1;
        }
    }

    fn tidy(&mut self) {
        self.leases.retain(|row| row.ids != 0);
        self.leases.sort_unstable_by_key(|row| (row.claim.token, row.ids));
    }
}

impl State {
    pub(super) fn new(faults: u8) -> Self {
        let worker = || Process { up: true, alive: true, held: Vec::new(), strays: Vec::new(), said: None };
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

    /// Every place where a token stands.
    fn tokens(&mut self) -> Vec<&mut Token> {
        let mut all: Vec<&mut Token> = Vec::new();
        for worker in &mut self.workers {
            all.extend(worker.held.iter_mut().map(|(claim, _)| &mut claim.token));
            all.extend(&mut worker.strays);
            all.extend(worker.said.iter_mut().map(|said| &mut said.claim.token));
        }
        all.extend(self.late_claims.iter_mut().map(|(_, token)| token));
        all.extend(self.late_settles.iter_mut().map(|said| &mut said.claim.token));
        all.extend(self.db.leases.iter_mut().chain(&mut self.synced.leases).map(|row| &mut row.claim.token));
        all.extend(self.recovery.iter_mut().flat_map(|recovery| recovery.found.iter_mut().map(|(token, _)| token)));
        all
    }

    /// A token that nobody knows.
    pub(super) fn fresh(&mut self) -> Token {
        let known: Vec<Token> = self.tokens().into_iter().map(|token| *token).collect();
        (0..=u8::MAX).find(|token| !known.contains(token)).unwrap_or_default()
    }

    /// Names tokens in the order in which they stand, so that states which differ only in names are one.
    pub(super) fn rename(&mut self) {
        for worker in &mut self.workers {
            worker.held.retain(|(_, ids)| *ids != 0);
        }
        self.db.tidy();
        self.synced.tidy();
        let mut order: Vec<Token> = Vec::new();
        for token in self.tokens() {
            let name = order.iter().position(|known| known == token).unwrap_or_else(|| {
                order.push(*token);
                order.len() - 1
            });
            *token = u8::try_from(name).unwrap_or(u8::MAX);
        }
        self.db.tidy();
        self.synced.tidy();
    }
}
