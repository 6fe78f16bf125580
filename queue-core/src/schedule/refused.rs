//! Why the database refused something about a schedule.

use crate::{enqueue, error::Error, schema::Store};

/// The error that a caller can tell apart.
pub(super) fn explain(error: sqlx::Error, store: Store, name: &str) -> Error {
    let said = error.as_database_error().and_then(|db| Some((db.code()?.into_owned(), db.message().to_owned())));
    match said {
        Some((code, _)) if code == "P0002" => Error::NoSchedule { name: name.to_owned() },
        Some((code, why)) if code == "55000" || code == "22023" => Error::Schedule { why },
        _ => enqueue::explain(error, store),
    }
}
