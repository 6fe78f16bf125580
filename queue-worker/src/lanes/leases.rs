//! Registry of a worker's leases. A lease is registered before its claim is sent, and removed after the verdicts of all its jobs are
//! written.
//!
//! Housekeeping releases leases that are in the store but not in this registry. No other worker recovers these leases while this worker
//! is alive.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use queue_core::JobId;
use uuid::Uuid;

use crate::live::Notifier;

/// Tokens of a worker's leases, including leases of claims in flight.
#[derive(Clone, Default)]
pub(crate) struct LeaseRegistry(Arc<Mutex<LeaseTokens>>);

#[derive(Default)]
struct LeaseTokens {
    /// First half of each claim's token. All leases of a claim have the same first half.
    held: HashSet<u64>,
    /// Leases with jobs for which neither a verdict nor a dead letter can be stored. Releasing these jobs would run them again.
    given_up: HashSet<Uuid>,
}

impl LeaseRegistry {
    /// Registers a new token for a claim that is about to be sent.
    pub(crate) fn begin(&self) -> Arc<LeaseGuard> {
        let token = Uuid::new_v4();
        self.tokens().held.insert(claim_of(token));
        Arc::new(LeaseGuard { token, held: self.clone(), claim: None, permits: None, unsent: Arc::default() })
    }

    /// Returns the number of claims that are in flight or have unwritten verdicts.
    pub(crate) fn count(&self) -> usize {
        self.tokens().held.len()
    }

    /// Returns whether the lease is registered or was given up. Housekeeping does not release such a lease.
    pub(crate) fn knows(&self, token: Uuid) -> bool {
        let tokens = self.tokens();
        tokens.held.contains(&claim_of(token)) || tokens.given_up.contains(&token)
    }

    /// Locks the tokens. A poisoned lock stays usable, because no update under the lock can be left incomplete.
    fn tokens(&self) -> MutexGuard<'_, LeaseTokens> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the half of a token that identifies the claim. A shared lease has the claim's token. The token of a single job's lease
/// consists of the first half of the claim's token and the job id.
fn claim_of(token: Uuid) -> u64 {
    token.as_u64_pair().0
}

/// Guard that keeps a lease registered. First the claim holds the guard. After the claim, each job holds the guard until the job's
/// verdict is written.
pub(crate) struct LeaseGuard {
    token: Uuid,
    held: LeaseRegistry,
    /// Guard of the claim, or `None` if this is the claim's guard.
    claim: Option<Arc<LeaseGuard>>,
    /// Notifier to call when permits are released, and the limits whose permits the job holds. `None` if the guard holds no permits.
    permits: Option<(Arc<Notifier>, Arc<[i64]>)>,
    /// Number of unsent verdicts of the lease's jobs.
    unsent: Arc<AtomicUsize>,
}

impl LeaseGuard {
    /// Creates the guard of a job that holds permits of the limits `limit_ids`.
    pub(super) fn part(self: &Arc<Self>, notifier: &Arc<Notifier>, limit_ids: &Arc<[i64]>) -> Arc<Self> {
        let permits = Some((Arc::clone(notifier), Arc::clone(limit_ids)));
        Arc::new(Self {
            token: self.token,
            held: self.held.clone(),
            claim: Some(Arc::clone(self)),
            permits,
            unsent: Arc::clone(&self.unsent),
        })
    }

    /// Creates the guard of a job that has a separate lease.
    pub(super) fn of_job(self: &Arc<Self>, id: JobId) -> Arc<Self> {
        let token = Uuid::from_u64_pair(claim_of(self.token), id.0.cast_unsigned());
        Arc::new(Self { token, held: self.held.clone(), claim: Some(Arc::clone(self)), permits: None, unsent: Arc::new(1.into()) })
    }

    /// Returns the limits whose permits the job holds.
    pub(crate) fn limit_ids(&self) -> &[i64] {
        self.permits.as_ref().map_or(&[], |(_, limit_ids)| limit_ids)
    }

    pub(crate) fn token(&self) -> Uuid {
        self.token
    }

    /// Sets the number of jobs in the lease.
    pub(crate) fn expect(&self, jobs: usize) {
        self.unsent.store(jobs, Relaxed);
    }

    /// Returns the number of unsent verdicts of the lease's jobs.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.load(Relaxed)
    }

    /// Reduces the number of unsent verdicts by `jobs`. The verdicts of these jobs have been sent or are not needed.
    pub(crate) fn note_sent(&self, jobs: usize) {
        // A separate load and store are sufficient, because no other task changes the number.
        self.unsent.store(self.unsent().saturating_sub(jobs), Relaxed);
    }

    /// Prevents housekeeping from releasing the remaining jobs of the lease while this worker is alive.
    pub(crate) fn give_up(&self) {
        self.held.tokens().given_up.insert(self.token);
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if let Some((notifier, limit_ids)) = &self.permits {
            notifier.notify_freed_permit(self.token, limit_ids);
        }
        if self.claim.is_none() {
            self.held.tokens().held.remove(&claim_of(self.token));
        }
    }
}

impl std::fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LeaseGuard").field(&self.token).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::ClaimInbox;

    #[test]
    fn a_lease_stays_known_until_its_last_verdict_and_an_abandoned_one_for_ever() {
        let held = LeaseRegistry::default();
        let (claim, other) = (held.begin(), held.begin());
        let job = Arc::clone(&claim);
        let token = claim.token();
        drop(claim);
        assert!(held.knows(token) && held.count() == 2);
        drop(job);
        assert!(!held.knows(token) && held.count() == 1);
        let (notifier, limit_ids): (Arc<Notifier>, Arc<[i64]>) = (Arc::default(), Arc::new([7]));
        let inbox = ClaimInbox::of(&limit_ids);
        notifier.set_inboxes(vec![Arc::clone(&inbox)]);
        let permit = other.part(&notifier, &limit_ids);
        assert!(permit.limit_ids() == [7] && other.limit_ids().is_empty() && inbox.take().freed.is_empty());
        other.give_up();
        let token = other.token();
        drop(permit);
        assert!(inbox.take().freed.contains(&token) && held.count() == 1, "a finished job releases its permits, its lease stays known");
        let (a, b) = (other.of_job("7".parse().unwrap()), other.of_job("8".parse().unwrap()));
        let of_a = a.token();
        assert!(of_a != b.token() && of_a.as_u64_pair() == (token.as_u64_pair().0, 7));
        drop((a, other));
        assert!(held.knows(of_a) && held.count() == 1, "another job of the claim has not finished");
        drop(b);
        assert!(held.knows(token) && !held.knows(of_a) && held.count() == 0);
    }
}
