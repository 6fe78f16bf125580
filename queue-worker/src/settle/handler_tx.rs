//! Settings for the worker's last statement in a handler's transaction, and the timing of queries for a commit's outcome.

use std::time::Duration;

use crate::live::our_settings;

/// Statements that prepare a handler's transaction for the worker's last statement.
///
/// Deferred constraints are checked first, under the handler's settings. A violation then counts as a failure of the handler instead of a
/// lost commit. Then the worker's settings are applied. If the connection is lost between the verdict and the commit, the idle timeout
/// makes the server release the lock on the lease soon. The savepoint lets the worker retry the verdict without losing the handler's
/// writes.
pub(super) const PREPARE_VERDICT: &str = concat!(
    "set constraints all immediate; ",
    our_settings!(),
    "set local idle_in_transaction_session_timeout = '15s'; savepoint queue_verdict",
);

/// Maximum time for determining a commit's outcome after its response was lost.
pub(super) const RECONCILE_TIMEOUT: Duration = Duration::from_mins(1);

/// Minimum interval between queries for a commit's outcome.
pub(super) const RECONCILE_INTERVAL: Duration = Duration::from_millis(200);
