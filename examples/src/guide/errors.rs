//! Code block of `docs/ERRORS.md`.

use axum::http::StatusCode;

fn status(error: &queue_core::Error) -> StatusCode {
    use queue_core::Error as E;
    match error {
        E::NotFound { .. } | E::NoSchedule { .. } | E::NotPlaced { .. } => StatusCode::NOT_FOUND,
        E::WrongState { .. } | E::KeyTaken { .. } | E::Locked { .. } | E::CannotMove { .. } => StatusCode::CONFLICT,
        E::InvalidName { .. } | E::OutOfRange { .. } | E::Payload { .. } | E::Signal { .. } | E::Schedule { .. } => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        E::OneOfMany { source, .. } | E::Node { source, .. } => status(source),
        E::AtCapacity { .. } | E::Moved { .. } => StatusCode::SERVICE_UNAVAILABLE,
        E::Database(error) if may_pass(error) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn may_pass(error: &sqlx::Error) -> bool {
    use sqlx::Error as E;
    match error {
        E::Database(db) => db.code().is_some_and(|code| {
            ["08", "40", "53", "57", "58"].iter().any(|class| code.starts_with(class)) || code == "25006" || code == "55P03"
        }),
        E::Io(_) | E::Tls(_) | E::Protocol(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed => true,
        _ => false,
    }
}
