//! What a claim under limits says besides, and what stood in its way.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::live::Bell;

/// What a claim under limits says besides.
#[derive(Clone)]
pub(crate) struct Asked {
    /// The gates of the limits, in order.
    pub(crate) gates: Arc<[i64]>,
    /// Whether one of them is by key.
    pub(crate) keyed: bool,
    /// Leases of which jobs have ended here.
    pub(crate) freed: Vec<Uuid>,
    /// Told of those that the claim takes, once they have ended.
    pub(crate) told: Arc<Bell>,
    /// How long it may take until they begin, if there is a rate.
    pub(crate) slack: Duration,
    /// From where on to read the permits of each limit, if that is known, and since when. Of another server's permits it says nothing.
    pub(crate) floors: Option<(Vec<i64>, Instant)>,
}

/// When what was claimed under a rate may begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// It is counted until then, and does not begin later.
    pub(crate) until: Instant,
    /// How long it has taken so far.
    pub(crate) spent: Duration,
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").field("gates", &self.gates).field("freed", &self.freed).finish_non_exhaustive()
    }
}

/// What stood in the way of more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Room {
    /// Nothing.
    #[default]
    Open,
    /// All permits are held.
    Full,
    /// A time must come first.
    Later(Duration),
    /// Some keys have none, and no others wait; in this time the first of them may.
    Keys(Option<Duration>),
    /// The same, but not all keys that wait were looked at: a part, of which `u64::MAX` is the whole.
    More(u64),
    /// Some worker may not know the limit yet.
    Unknown,
    /// There is no such limit any more.
    Gone,
    /// Somebody has it locked, who is no claim.
    Locked,
}
