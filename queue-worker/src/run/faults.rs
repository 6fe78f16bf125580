//! What an error says of the transaction that it came from. Pure.

use crate::error::transient;

/// Whether the server does not store this, for a reason that waiting does not change.
pub(super) fn is_refusal(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(_)) && !is_lost(error) && !transient(error)
}

/// Whether the connection is gone, and with it the lock.
pub(crate) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(db) => {
            db.code().is_some_and(|code| code.starts_with("57P") || code.starts_with("08") || code.starts_with("25P03"))
        }
        _ => true,
    }
}
