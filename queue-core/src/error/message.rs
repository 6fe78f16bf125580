//! Error texts for database errors.

use crate::program::program_name;

/// Returns the error message for a database error. The message omits the server's `DETAIL` and the statement, which could contain data. It
/// also omits the database address, which could contain a password.
pub fn message(error: &sqlx::Error) -> String {
    let name = program_name();
    match error {
        sqlx::Error::Database(db) => match db.code().as_deref() {
            Some(code @ ("26000" | "42P05")) => format!(
                "the database refused: {} ({code}); a transaction pooler breaks prepared statements: set `max_prepared_statements` \
                 (PgBouncer 1.21 or later), use session pooling, or connect to the server directly (QUEUE_DIRECT_URL)",
                db.message()
            ),
            Some(code) if let Some(fix) = login_advice(code, db.message()) => {
                format!("the database refused: {} ({code}); {fix}", db.message())
            }
            Some(code) if db.message().contains("affected by row-level security policy") => format!(
                "the database refused: {} ({code}); if the table belongs to the store, disable it: `{name} doctor` prints the statement",
                db.message()
            ),
            Some(code @ "25006") => format!(
                "the database refused: {} ({code}); connect to the primary, or let this login write: `{name} doctor` prints the statement",
                db.message()
            ),
            Some(code @ "42501") => format!(
                "the database refused: {} ({code}); the login lacks a privilege: grant it the role of the store that has it, such as `queue_producer` \
                 to enqueue or `queue_operator` to operate (`{name} roles` creates them), or run this as the owner",
                db.message()
            ),
            Some(code) => format!("the database refused: {} ({code})", db.message()),
            None => format!("the database refused: {}", db.message()),
        },
        sqlx::Error::Io(io) => format!("the database is unreachable: {io}"),
        sqlx::Error::Configuration(_) => "the database address is invalid; expected `postgres://user:password@host:5432/name`, where a password has `%40` for `@` and `%2F` for `/`".to_owned(),
        other => format!("the database failed: {other}"),
    }
}

/// Returns advice if the server rejected the login, for example which part of the address to check.
fn login_advice(code: &str, message: &str) -> Option<&'static str> {
    Some(match code {
        // `queue-worker` adds the advice about encryption, because the advice depends on its feature `tls`.
        "28000" if message.contains("no encryption") => return None,
        "28000" if message.contains("pg_hba") => {
            "add a line for it there, or check the user, host and database in the address: `postgres://USER:password@HOST:5432/NAME`"
        }
        "28000" => "create that role with `login`, or use another user in the address: `postgres://USER:password@host:5432/name`",
        "28P01" => {
            "check the user and the password in the address, `postgres://USER:PASSWORD@host:5432/name`, where a password has `%40` for `@`, `%2F` \
             for `/`, `%3A` for `:` and `%23` for `#`"
        }
        "3D000" => "create it, or use another database in the address: `postgres://user:password@host:5432/NAME`",
        "42501" if message.starts_with("permission denied for database") => {
            "allow the login, `grant connect on database NAME to ROLE`, or `grant create` if a schema has to be created"
        }
        _ => return None,
    })
}
