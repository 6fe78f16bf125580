//! The database that a command works on.

use queue_core::Store;

use super::{problem::Problem, settings::Settings};
use crate::live::Database;

/// The database that the settings name; the embedded one if they name none.
pub(super) async fn open(settings: &Settings) -> Result<Database, Problem> {
    Ok(settings.database().connect().await?)
}

/// As [`open`], with the store checked to be what this release needs.
pub(super) async fn open_store(settings: &Settings) -> Result<(Database, Store), Problem> {
    let store = settings.store()?;
    let database = open(settings).await?;
    let mut connection = database.pool().acquire().await?;
    queue_core::migrate::verify(&mut connection, store).await?;
    drop(connection);
    Ok((database, store))
}
