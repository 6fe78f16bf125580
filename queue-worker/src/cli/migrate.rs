//! `migrate` command: creates or updates a store's schema.

use queue_core::migrate::{LATEST, print as sql, status};
use serde_json::json;

use super::{args::MigrateStep, open::open, print, problem::Problem, settings::Settings};

pub(super) async fn migrate(settings: &Settings, step: Option<MigrateStep>, as_json: bool) -> Result<(), Problem> {
    let store = settings.store()?;
    match step.unwrap_or(MigrateStep::Run) {
        MigrateStep::Run => {
            let database = open(settings).await?;
            let applied = database.migrate(store).await?;
            database.close().await;
            if as_json {
                return print::json(&json!({ "schema": store.schema(), "applied": applied, "version": LATEST }));
            }
            let schema = store.schema();
            match applied.as_slice() {
                [] => print::lines(&format!("the schema `{schema}` is up to date at version {LATEST}")),
                applied => print::lines(&format!("the schema `{schema}` is now at version {LATEST}; applied {}", versions(applied))),
            }
        }
        MigrateStep::Print if as_json => print::json(&json!({ "schema": store.schema(), "sql": sql(store) })),
        MigrateStep::Print => print::lines(&sql(store)),
        MigrateStep::Status => {
            let database = open(settings).await?;
            let mut connection = database.pool().acquire().await?;
            let migrations = status(&mut connection, store).await?;
            drop(connection);
            database.close().await;
            if as_json {
                return print::json(&json!({ "schema": store.schema(), "migrations": migrations }));
            }
            let rows = migrations.iter().map(|migration| {
                let applied = migration.applied_at.map_or_else(|| "not yet".to_owned(), print::time);
                [migration.version.to_string(), migration.name.clone(), applied]
            });
            print::lines(&print::table(["version", "name", "applied"], rows))
        }
    }
}

/// Formats applied migrations as a range. Their versions are consecutive.
pub(super) fn versions(applied: &[i32]) -> String {
    match applied {
        [first, .., last] => format!("{first} to {last}"),
        applied => applied.iter().map(ToString::to_string).collect(),
    }
}
