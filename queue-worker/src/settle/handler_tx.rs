//! How transactions opened by handlers end: the settings for the worker's last statement, and how a lost commit answer is reconciled.

use std::time::Duration;

use crate::live::our_settings;

/// Prepares a handler's transaction for the worker's last statement.
///
/// Deferred constraints are checked first, under the handler's own settings, so that a violation counts as a failure of the handler and not
/// as a lost commit. Then the worker's settings apply. The idle timeout makes the server release the lease's lock soon if this connection
/// is lost between the verdict and the commit. The savepoint lets the verdict be retried without undoing the handler's writes.
pub(super) const PREPARE_VERDICT: &str = concat!(
    "set constraints all immediate; ",
    our_settings!(),
    "set local idle_in_transaction_session_timeout = '15s'; savepoint queue_verdict",
);

/// How long the worker tries to find the outcome of a commit whose answer was lost.
pub(super) const RECONCILE_TIMEOUT: Duration = Duration::from_mins(1);

/// Interval between two queries for that outcome.
pub(super) const RECONCILE_INTERVAL: Duration = Duration::from_millis(200);
