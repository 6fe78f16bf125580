//! Conversion of database errors raised by schedule functions.

use crate::{enqueue, error::Error, schema::Store};

/// Converts a database error to the variant of [`Error`] for its SQLSTATE code.
pub(super) fn convert_error(error: sqlx::Error, store: Store, name: &str) -> Error {
    let details = error.as_database_error().and_then(|db| Some((db.code()?.into_owned(), db.message().to_owned())));
    match details {
        Some((code, _)) if code == "P0002" => Error::NoSchedule { name: name.to_owned() },
        Some((code, why)) if code == "55000" || code == "22023" => Error::Schedule { why },
        _ => enqueue::store_error(error, store),
    }
}
