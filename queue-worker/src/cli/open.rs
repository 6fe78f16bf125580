//! The database that a command works on.

use queue_core::Store;

use super::{problem::Problem, settings::Settings};
use crate::{
    error::Error,
    live::{Database, OnStandby},
};

/// The database that the settings name.
pub(super) async fn open(settings: &Settings) -> Result<Database, Problem> {
    check_place(settings, !cfg!(debug_assertions))?;
    Ok(settings.database().connect().await?)
}

/// As [`open`], for whoever waits until the database takes writes.
pub(super) async fn open_patiently(settings: &Settings, on_standby: OnStandby) -> Result<Database, Problem> {
    check_place(settings, !cfg!(debug_assertions))?;
    Ok(settings.database_and_pooler().on_standby(on_standby).connect().await?)
}

/// As [`open`], with the store checked to be what this release needs.
pub(super) async fn open_store(settings: &Settings) -> Result<(Database, Store), Problem> {
    checked(settings, open(settings).await?).await
}

/// As [`open_store`], for what only looks: where that is to be done.
pub(super) async fn open_to_look(settings: &Settings) -> Result<(Database, Store), Problem> {
    checked(settings, open_unchecked(settings).await?).await
}

/// The same, whatever is there.
pub(super) async fn open_unchecked(settings: &Settings) -> Result<Database, Problem> {
    match &settings.read_url {
        Some(url) => {
            check_place(settings, !cfg!(debug_assertions))?;
            Ok(Database::options().url(url).connect().await?)
        }
        None => open(settings).await,
    }
}

async fn checked(settings: &Settings, database: Database) -> Result<(Database, Store), Problem> {
    let store = settings.store()?;
    let mut connection = database.pool().acquire().await?;
    queue_core::migrate::verify(&mut connection, store).await.map_err(|error| database.placed(error))?;
    drop(connection);
    Ok((database, store))
}

/// Without a word a development build has a database of its own; a release build is told where it is, lest a deployment whose variable is missing
/// works on one that nobody else sees.
fn check_place(settings: &Settings, is_release: bool) -> Result<(), Problem> {
    let beside = [&settings.direct_url, &settings.read_url].into_iter().any(Option::is_some);
    match (&settings.database_url, settings.embedded) {
        (None, _) if beside => Err(Problem::usage(
            "QUEUE_DIRECT_URL and QUEUE_READ_URL lead to the database that DATABASE_URL names, and that names none; set it, or leave them out",
        )),
        (Some(_), Some(true)) => Err(Problem::usage(
            "a database URL and the embedded PostgreSQL are both named; leave out DATABASE_URL, or `--embedded` (QUEUE_EMBEDDED)",
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
    fn a_release_build_has_a_database_of_its_own_only_if_that_is_said() {
        let url = Some("postgres:///d".to_owned());
        for (database_url, embedded, is_release, wanted) in [
            (None, None, false, Ok(())),
            (None, None, true, Err("no database is named")),
            (None, Some(true), true, Ok(())),
            (None, Some(false), false, Err("no database is named")),
            (url.clone(), None, true, Ok(())),
            (url.clone(), Some(false), true, Ok(())),
            (url, Some(true), false, Err("both named")),
        ] {
            let settings = Settings { database_url, embedded, ..Settings::default() };
            let said = check_place(&settings, is_release).map_err(|problem| problem.to_string());
            match (said, wanted) {
                (Ok(()), Ok(())) => {}
                (Err(said), Err(wanted)) if said.contains(wanted) => {}
                (said, wanted) => panic!("{said:?} where {wanted:?} was to be"),
            }
        }
    }
    #[test]
    fn an_address_beside_a_database_that_is_not_named_is_refused() {
        let url = || Some("postgres:///d".to_owned());
        for (direct_url, read_url, embedded) in [(url(), None, None), (None, url(), None), (url(), None, Some(true))] {
            let settings = Settings { direct_url, read_url, embedded, ..Settings::default() };
            assert!(check_place(&settings, false).unwrap_err().to_string().contains("DATABASE_URL"));
        }
        let both = Settings { database_url: url(), direct_url: url(), read_url: url(), ..Settings::default() };
        assert!(check_place(&both, true).is_ok());
    }
}
