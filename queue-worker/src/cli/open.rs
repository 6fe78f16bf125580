//! Opens a command's database.

use queue_core::Store;

use super::{problem::Problem, settings::Settings};
use crate::{
    error::Error,
    live::{Database, OnStandby},
};

/// Connects to the configured database.
pub(super) async fn open(settings: &Settings) -> Result<Database, Problem> {
    check_addresses(settings, !cfg!(debug_assertions))?;
    Ok(settings.database().connect().await?)
}

/// Connects like [`open`], but through the pooler if a pooler is set. `on_standby` determines what happens if the database is a standby.
pub(super) async fn open_for_worker(settings: &Settings, on_standby: OnStandby) -> Result<Database, Problem> {
    check_addresses(settings, !cfg!(debug_assertions))?;
    Ok(settings.database_and_pooler().on_standby(on_standby).connect().await?)
}

/// Connects like [`open`], and verifies that the store's schema fits this release.
pub(super) async fn open_store(settings: &Settings) -> Result<(Database, Store), Problem> {
    verify(settings, open(settings).await?).await
}

/// Connects like [`open_store`] for a read-only command. Uses the read URL if one is set.
pub(super) async fn open_for_reading(settings: &Settings) -> Result<(Database, Store), Problem> {
    verify(settings, open_unverified(settings).await?).await
}

/// Connects for a read-only command, without verifying the schema.
pub(super) async fn open_unverified(settings: &Settings) -> Result<Database, Problem> {
    match &settings.read_url {
        Some(url) => {
            check_addresses(settings, !cfg!(debug_assertions))?;
            Ok(Database::options().url(url).connect().await?)
        }
        None => open(settings).await,
    }
}

async fn verify(settings: &Settings, database: Database) -> Result<(Database, Store), Problem> {
    let store = settings.store()?;
    let mut connection = database.pool().acquire().await?;
    queue_core::migrate::verify(&mut connection, store).await.map_err(|error| database.placed(error))?;
    drop(connection);
    Ok((database, store))
}

/// Rejects contradictory or missing addresses. A development build defaults to an embedded database. A release build requires an explicit
/// choice. Otherwise, a deployment with a missing variable would start on an embedded database of its own.
pub(super) fn check_addresses(settings: &Settings, is_release: bool) -> Result<(), Problem> {
    let beside = [&settings.direct_url, &settings.read_url].into_iter().any(Option::is_some);
    match (&settings.database_url, settings.embedded) {
        (None, _) if beside => {
            Err(Problem::usage("QUEUE_DIRECT_URL and QUEUE_READ_URL need DATABASE_URL, which is not set; set it, or unset them"))
        }
        (Some(_), Some(true)) => Err(Problem::usage(
            "a database URL and the embedded PostgreSQL are both set; omit DATABASE_URL, or `--embedded` (QUEUE_EMBEDDED)",
        )),
        (Some(_), _) | (None, Some(true)) => Ok(()),
        (None, None) if !is_release => Ok(()),
        (None, _) => Err(Error::NoDatabase.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_build_embeds_a_database_only_on_request() {
        let url = Some("postgres:///d".to_owned());
        for (database_url, embedded, is_release, expected) in [
            (None, None, false, Ok(())),
            (None, None, true, Err("no database is named")),
            (None, Some(true), true, Ok(())),
            (None, Some(false), false, Err("no database is named")),
            (url.clone(), None, true, Ok(())),
            (url.clone(), Some(false), true, Ok(())),
            (url, Some(true), false, Err("both set")),
        ] {
            let settings = Settings { database_url, embedded, ..Settings::default() };
            let result = check_addresses(&settings, is_release).map_err(|problem| problem.to_string());
            match (result, expected) {
                (Ok(()), Ok(())) => {}
                (Err(message), Err(expected)) if message.contains(expected) => {}
                (result, expected) => panic!("got {result:?}, expected {expected:?}"),
            }
        }
    }
    #[test]
    fn direct_and_read_urls_need_a_database_url() {
        let url = || Some("postgres:///d".to_owned());
        for (direct_url, read_url, embedded) in [(url(), None, None), (None, url(), None), (url(), None, Some(true))] {
            let settings = Settings { direct_url, read_url, embedded, ..Settings::default() };
            assert!(check_addresses(&settings, false).unwrap_err().to_string().contains("DATABASE_URL"));
        }
        let both = Settings { database_url: url(), direct_url: url(), read_url: url(), ..Settings::default() };
        assert!(check_addresses(&both, true).is_ok());
    }
}
