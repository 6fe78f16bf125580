//! Settings for the worker's last statement in a handler's transaction, and the timing of reconciliation after a lost response.

use std::time::Duration;

use crate::live::our_settings;

/// Statements that prepare a handler's transaction for the worker's last statement.
///
/// Deferred constraints are checked first, under the handler's own settings, so that a violation counts as a failure of the handler and not
/// as a lost commit. Then the worker's settings apply. The idle timeout makes the server release the lease's lock soon if the connection is
/// lost between the verdict and the commit. The savepoint allows the verdict to be retried without rolling back the handler's writes.
pub(super) const PREPARE_VERDICT: &str = concat!(
    "set constraints all immediate; ",
    our_settings!(),
    "set local idle_in_transaction_session_timeout = '15s'; savepoint queue_verdict",
);

/// Timeout for determining the outcome of a commit whose response was lost.
pub(super) const RECONCILE_TIMEOUT: Duration = Duration::from_mins(1);

/// Interval between queries for the outcome of such a commit.
pub(super) const RECONCILE_INTERVAL: Duration = Duration::from_millis(200);
