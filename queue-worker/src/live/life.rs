//! Until when this worker surely holds what it holds. A process that stood still finds out here, before its heartbeat tells anybody.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Prolonged by each heartbeat. Whoever begins something asks it first.
#[derive(Clone)]
pub(crate) struct Life {
    since: Instant,
    /// In ns from then on.
    until: Arc<AtomicU64>,
    /// How many have ended.
    ended: Arc<AtomicU64>,
}

/// One life: of what was claimed in it nothing is to be begun in a later one.
pub(crate) struct OneLife {
    life: Life,
    nth: AtomicU64,
}

impl Life {
    /// Nothing is to be begun yet.
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), until: Arc::default(), ended: Arc::default() }
    }

    /// From now on it is good until then.
    pub(super) fn prolong(&self, until: Instant) {
        let until = until.saturating_duration_since(self.since);
        self.until.store(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Others may have what this worker held.
    pub(super) fn end(&self) {
        self.until.store(0, Relaxed);
        self.ended.fetch_add(1, Relaxed);
    }

    /// For how long it is good still, if there is one.
    #[cfg(feature = "health")]
    pub(crate) fn left(&self) -> Option<Duration> {
        let until = self.until.load(Relaxed);
        (until > 0).then(|| Duration::from_nanos(until).saturating_sub(self.since.elapsed()))
    }

    /// The present one.
    pub(crate) fn present(&self) -> OneLife {
        OneLife { life: self.clone(), nth: AtomicU64::new(self.ended.load(Relaxed)) }
    }
}

impl OneLife {
    /// Nothing is left of it: from here on it is the present one.
    pub(crate) fn renew(&self) {
        self.nth.store(self.life.ended.load(Relaxed), Relaxed);
    }

    /// Whether nothing of it is to be begun now.
    pub(crate) fn is_over(&self) -> bool {
        let Life { since, until, ended } = &self.life;
        self.nth.load(Relaxed) != ended.load(Relaxed) || since.elapsed() >= Duration::from_nanos(until.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_over_before_it_begins_and_once_it_is_not_prolonged() {
        let (life, later) = (Life::new(), Instant::now() + Duration::from_hours(1));
        let one = life.present();
        assert!(one.is_over());
        life.prolong(later);
        assert!(!one.is_over());
        life.end();
        assert!(one.is_over());
        life.prolong(later);
        assert!(one.is_over() && !life.present().is_over(), "what is left of it is not begun in the next one");
        one.renew();
        assert!(!one.is_over());
        life.prolong(Instant::now());
        assert!(one.is_over());
    }
}
