//! What is shown of the database's own errors.

use crate::program::program_name;

/// A database error without what might show a row: no DETAIL, no statement, no password.
pub fn message(error: &sqlx::Error) -> String {
    let name = program_name();
    match error {
        sqlx::Error::Database(db) => match db.code().as_deref() {
            Some(code @ ("26000" | "42P05")) => format!(
                "the database refused: {} ({code}); that is what a pooler of transactions does to prepared statements: set `max_prepared_statements` \
                 (PgBouncer 1.21 or later), let it pool sessions, or name the server itself (QUEUE_DIRECT_URL)",
                db.message()
            ),
            Some(code) if let Some(fix) = login_fix(code, db.message()) => {
                format!("the database refused: {} ({code}); {fix}", db.message())
            }
            Some(code) if db.message().contains("affected by row-level security policy") => format!(
                "the database refused: {} ({code}); if that is a table of the store, switch it off: `{name} doctor` has the statement",
                db.message()
            ),
            Some(code @ "25006") => format!(
                "the database refused: {} ({code}); name the primary, or let this login write: `{name} doctor` has the statement",
                db.message()
            ),
            Some(code @ "42501") => format!(
                "the database refused: {} ({code}); the login lacks a right: grant it the role of the store that has it, such as `queue_operator` \
                 (`{name} roles` makes them), or do this as the owner",
                db.message()
            ),
            Some(code) => format!("the database refused: {} ({code})", db.message()),
            None => format!("the database refused: {}", db.message()),
        },
        sqlx::Error::Io(io) => format!("the database is out of reach: {io}"),
        sqlx::Error::Configuration(_) => {
            "the database address cannot be read; it looks like `postgres://user:password@host:5432/name`".to_owned()
        }
        other => format!("the database failed: {other}"),
    }
}

/// What helps a login that the server does not let into the database: which part of the address to look at.
fn login_fix(code: &str, message: &str) -> Option<&'static str> {
    Some(match code {
        // What is to be done about encryption, the worker says.
        "28000" if message.contains("no encryption") => return None,
        "28000" if message.contains("pg_hba") => {
            "let it in by a line there, or look at the user, the host and the name in the address: `postgres://USER:password@HOST:5432/NAME`"
        }
        "28000" => "make that role, with `login`, or name another user in the address: `postgres://USER:password@host:5432/name`",
        "28P01" => {
            "look at the user and the password in the address, `postgres://USER:PASSWORD@host:5432/name`, where a password has `%40` for `@`, `%2F` \
             for `/`, `%3A` for `:` and `%23` for `#`"
        }
        "3D000" => "make it, or name another database in the address: `postgres://user:password@host:5432/NAME`",
        "42501" if message.starts_with("permission denied for database") => {
            "let the login in, `grant connect on database NAME to ROLE`, or `grant create` where a schema is to be made"
        }
        _ => return None,
    })
}
