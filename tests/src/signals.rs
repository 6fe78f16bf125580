//! Runs the statements for signals, and for jobs that are waiting for signals, one at a time on the caller's connection.

use queue_core::JobId;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::protocol::{JobVerdict, Refused, sql};

/// Parks jobs until a signal named `go` arrives. Returns the rejected verdicts.
pub async fn park_held(connection: &mut PgConnection, verdicts: &[JobVerdict]) -> sqlx::Result<Vec<Refused>> {
    sqlx::query_as(sql(include_str!("../../queue-worker/sql/park_held.sql")))
        .bind(verdicts.iter().map(|one| one.token).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|one| one.job.id).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|one| one.job.lane).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|one| one.job.attempts).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|_| None::<f64>).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|_| r#"["go"]"#).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
}

/// Restarts jobs with a new payload of the type `do`. Returns the rejected verdicts.
pub async fn restart(connection: &mut PgConnection, verdicts: &[JobVerdict]) -> sqlx::Result<Vec<Refused>> {
    sqlx::query_as(sql(include_str!("../../queue-worker/sql/restart.sql")))
        .bind(verdicts.iter().map(|one| one.token).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|one| one.job.id).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|one| one.job.attempts).collect::<Vec<_>>())
        .bind(vec!["do"; verdicts.len()])
        .bind(vec![r#"{"act": {"Ok": "again"}}"#; verdicts.len()])
        .fetch_all(connection)
        .await
}

/// Makes parked jobs ready if their signal has arrived. Returns the number of jobs.
pub async fn wake_parked(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let wake = sqlx::query(sql(include_str!("../../queue-worker/sql/wake_parked.sql"))).bind(0_i64).bind(1000);
    wake.fetch_one(connection).await?.try_get::<i32, _>("moved").map(i64::from)
}

/// Sends a signal named `go`. Returns whether the signal was sent.
pub async fn signal(connection: &mut PgConnection, job: JobId) -> sqlx::Result<bool> {
    let send = sqlx::query_scalar::<_, String>(sql(include_str!("../../queue-core/sql/signal.sql"))).bind(job).bind("go").bind("1");
    Ok(send.fetch_one(connection).await? == "sent")
}

/// Receives a signal named `go` and journals it as a step with a unique name. Returns whether a signal was received.
pub async fn receive(connection: &mut PgConnection, token: Uuid, job: JobId) -> sqlx::Result<bool> {
    let receive = sqlx::query(sql(include_str!("../../queue-worker/sql/receive.sql"))).bind([token]).bind([job]);
    let receive = receive.bind([Uuid::new_v4().to_string()]).bind([1_i16]).bind(["go"]).bind([None::<String>]);
    receive.fetch_optional(connection).await?.map_or(Ok(false), |row| row.try_get("is_journaled"))
}

/// Deletes signals of deleted jobs. Returns whether the statement found signals.
pub async fn prune_signals(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let prune = sqlx::query_scalar::<_, Option<i64>>(sql(include_str!("../../queue-worker/sql/prune_signals.sql"))).bind(0_i64).bind(1000);
    Ok(prune.fetch_one(connection).await?.is_some())
}
