//! The leases that this worker knows of: from before their claim is sent until all of their verdicts are written.
//!
//! Whatever else stands under its name in the store, nobody would ever end while it lives: `keep` looks for that. Does not touch the database.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use queue_core::JobId;
use uuid::Uuid;

use crate::live::Bell;

/// The tokens of a worker's leases, and of claims in the air.
#[derive(Clone, Default)]
pub(crate) struct KnownLeases(Arc<Mutex<Tokens>>);

#[derive(Default)]
struct Tokens {
    /// The first halves of their tokens, which the leases of a claim have in common.
    held: HashSet<u64>,
    /// Their jobs can be neither settled nor parked, so that giving them back would begin it all anew.
    given_up: HashSet<Uuid>,
}

impl KnownLeases {
    /// For a claim that is about to be sent, under a token of its own.
    pub(crate) fn begin(&self) -> Arc<Holding> {
        let token = Uuid::new_v4();
        self.tokens().held.insert(claim_of(token));
        Arc::new(Holding { token, held: self.clone(), whole: None, permits: None, unsent: Arc::default() })
    }

    /// How many claims are in the air, or have brought jobs whose verdicts are not written yet.
    pub(crate) fn count(&self) -> usize {
        self.tokens().held.len()
    }

    /// Whether somebody here sees to this lease.
    pub(crate) fn knows(&self, token: Uuid) -> bool {
        let tokens = self.tokens();
        tokens.held.contains(&claim_of(token)) || tokens.given_up.contains(&token)
    }

    /// Nothing is half-written under this lock, so that one which a panic left poisoned is as good as any.
    fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which claim a lease is of: one lease has its token, each of several has the first half of it and the id of its job.
fn claim_of(token: Uuid) -> u64 {
    token.as_u64_pair().0
}

/// Kept by a claim, then by each of its jobs until its verdict is written.
pub(crate) struct Holding {
    token: Uuid,
    held: KnownLeases,
    /// It is that of one job: its claim is known for as long as one of its jobs is.
    whole: Option<Arc<Holding>>,
    /// The job holds permits of limits with these gates.
    permits: Option<(Arc<Bell>, Arc<[i64]>)>,
    /// Of how many jobs of the lease no verdict has been sent.
    unsent: Arc<AtomicUsize>,
}

impl Holding {
    /// That of one job of the lease, which holds permits of these limits until its ending is written.
    pub(super) fn part(self: &Arc<Self>, bell: &Arc<Bell>, gates: &Arc<[i64]>) -> Arc<Self> {
        let permits = Some((Arc::clone(bell), Arc::clone(gates)));
        Arc::new(Self {
            token: self.token,
            held: self.held.clone(),
            whole: Some(Arc::clone(self)),
            permits,
            unsent: Arc::clone(&self.unsent),
        })
    }

    /// That of a job with a lease of its own.
    pub(super) fn of_job(self: &Arc<Self>, id: JobId) -> Arc<Self> {
        let token = Uuid::from_u64_pair(claim_of(self.token), id.0.cast_unsigned());
        Arc::new(Self { token, held: self.held.clone(), whole: Some(Arc::clone(self)), permits: None, unsent: Arc::new(1.into()) })
    }

    /// The gates of the limits whose permits the job holds.
    pub(crate) fn gates(&self) -> &[i64] {
        self.permits.as_ref().map_or(&[], |(_, gates)| gates)
    }

    /// What names the lease.
    pub(crate) fn token(&self) -> Uuid {
        self.token
    }

    /// Sets how many jobs the lease has.
    pub(crate) fn expect(&self, jobs: usize) {
        self.unsent.store(jobs, Relaxed);
    }

    /// Of how many of its jobs no verdict has been sent.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.load(Relaxed)
    }

    /// Counts jobs whose verdict is sent, or need not be.
    pub(crate) fn note_sent(&self, jobs: usize) {
        // No other task takes any away.
        self.unsent.store(self.unsent().saturating_sub(jobs), Relaxed);
    }

    /// What is left of the lease is not to be given back while this worker lives.
    pub(crate) fn give_up(&self) {
        self.held.tokens().given_up.insert(self.token);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if let Some((bell, gates)) = &self.permits {
            bell.note_freed(self.token, gates);
        }
        if self.whole.is_none() {
            self.held.tokens().held.remove(&claim_of(self.token));
        }
    }
}

impl std::fmt::Debug for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Holding").field(&self.token).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Hint;

    #[test]
    fn a_lease_is_known_until_its_last_job_is_written_and_one_given_up_for_ever() {
        let held = KnownLeases::default();
        let (claim, other) = (held.begin(), held.begin());
        let job = Arc::clone(&claim);
        let token = claim.token();
        drop(claim);
        assert!(held.knows(token) && held.count() == 2);
        drop(job);
        assert!(!held.knows(token) && held.count() == 1);
        let (bell, gates): (Arc<Bell>, Arc<[i64]>) = (Arc::default(), Arc::new([7]));
        let hint = Hint::of(&gates);
        bell.set_hints(vec![Arc::clone(&hint)]);
        let permit = other.part(&bell, &gates);
        assert!(permit.gates() == [7] && other.gates().is_empty() && hint.take().freed.is_empty());
        other.give_up();
        let token = other.token();
        drop(permit);
        assert!(hint.take().freed.contains(&token) && held.count() == 1, "a job gives its permits back, its lease stays known");
        let (a, b) = (other.of_job("7".parse().unwrap()), other.of_job("8".parse().unwrap()));
        let of_a = a.token();
        assert!(of_a != b.token() && of_a.as_u64_pair() == (token.as_u64_pair().0, 7));
        drop((a, other));
        assert!(held.knows(of_a) && held.count() == 1, "of a claim whose other job is not over");
        drop(b);
        assert!(held.knows(token) && !held.knows(of_a) && held.count() == 0);
    }
}
