//! How transactions of a handler's own end: what is set before our last statement, and how long a commit without an answer is asked after.

use std::time::Duration;

use crate::live::our_settings;

/// What the handler wrote is to stay. Constraints that it deferred are checked now, under its own settings, so that they count as its failure
/// and not as a lost commit. Then our statement runs under our settings. A server that loses us between the verdict and the commit lets go of
/// the lease soon.
pub(super) const KEEP: &str = concat!(
    "set constraints all immediate; ",
    our_settings!(),
    "set local idle_in_transaction_session_timeout = '15s'; savepoint queue_verdict",
);

/// How long a commit whose answer was lost is asked after.
pub(super) const ASK_FOR: Duration = Duration::from_mins(1);

/// Between two questions.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
