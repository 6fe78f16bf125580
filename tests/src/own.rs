//! Job type whose handler begins its own transaction and writes a row in the transaction. The payload selects what the handler does with
//! the transaction.

use std::time::Duration;

use queue_core::{Context, Error, Failure, Handler, Job as _, JobResult, JobTransaction, job};
use serde::{Deserialize, Serialize};
use sqlx::{Executor as _, PgConnection, PgPool};

use crate::{Act, Do};

/// Job that writes a row to the table `effect` in its own transaction, and then follows the script that `how` selects. The script `beside`
/// writes the row without a transaction.
#[job(send_only, max_attempts = 2, backoff = fixed("1ms"), timeout = "20s", output = Option<String>)]
#[derive(Serialize, Deserialize)]
pub struct Own {
    /// Name of the script.
    pub how: String,
}

impl Handler for Own {
    async fn run(self, cx: &Context) -> JobResult<Option<String>> {
        if self.how == "beside" {
            effect(&mut *cx.pool().acquire().await?, cx).await?;
            return Ok(None);
        }
        let mut tx = cx.begin().await?;
        effect(&mut tx, cx).await?;
        self.goes_wrong(cx, &mut tx).await?;
        match self.how.as_str() {
            "plain" => return tx.complete(None).await,
            "fail" => return Err(tx.fail("as told").await),
            "child, fail" => {
                child().enqueue(&mut tx).await?;
                return Err(tx.fail("as told").await);
            }
            "not completed" => return Ok(None),
            "rolled back" => {
                drop(tx);
                return Ok(None);
            }
            "error after" => {
                tx.complete(Some("committed".to_owned())).await?;
                return Err("too late".into());
            }
            "panic after" => {
                tx.complete(Some("committed".to_owned())).await?;
                panic!("too late");
            }
            "twice" => {
                tx.complete(Some("first".to_owned())).await?;
                assert!(matches!(cx.begin().await, Err(Error::LeaseLost { .. })), "a second transaction was begun");
                return Ok(Some("first".to_owned()));
            }
            "two at once" => {
                let mut other = cx.begin().await?;
                effect(&mut other, cx).await?;
                tx.complete(Some("first".to_owned())).await?;
                let refused = other.complete(None::<String>).await.err();
                assert!(refused.is_some_and(|failure| is_lost(&failure)), "completed twice");
                return Ok(Some("first".to_owned()));
            }
            "deferred, then again" => {
                let twice = "create temporary table once (n int unique deferrable initially deferred) on commit drop; insert into once values (1), (1)";
                tx.execute(twice).await?;
                assert!(tx.complete(None::<String>).await.is_err(), "a deferred constraint does not hold");
                tx = cx.begin().await?;
                effect(&mut tx, cx).await?;
            }
            "told" => {
                let result = tx.complete(Some("told".to_owned())).await;
                if result.is_err() {
                    effect(&mut *cx.pool().acquire().await?, cx).await?;
                }
                return result;
            }
            "nul" => return tx.complete(Some("a\0b".to_owned())).await,
            _ => {}
        }
        tx.complete(Some(self.how)).await
    }
}

impl Own {
    /// Runs the part of the script that precedes the end of the transaction. This part may fail or wait.
    async fn goes_wrong(&self, cx: &Context, tx: &mut JobTransaction) -> JobResult {
        match self.how.as_str() {
            "error" => return Err("as told".into()),
            "error first" if cx.attempt() == 1 => return Err("as told".into()),
            "panic first" if cx.attempt() == 1 => panic!("as told"),
            "hold" => hold(cx.pool()).await,
            "hold first" if cx.attempt() == 1 => hold(cx.pool()).await,
            "child" => drop(child().enqueue(&mut *tx).await?),
            "child, error" => {
                child().enqueue(&mut *tx).await?;
                return Err("as told".into());
            }
            "child outside, error" => {
                child().enqueue(cx.pool()).await?;
                return Err("as told".into());
            }
            "swallowed" => drop(tx.execute("select 1 / 0").await),
            "ended in sql" => {
                tx.execute("rollback").await?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn child() -> Do {
    Do { act: Act::Ok(String::new()) }
}

/// Returns whether a failure means that the lease was lost.
pub fn is_lost(failure: &Failure) -> bool {
    let error = failure.error().and_then(|error| error.downcast_ref::<Error>());
    matches!(error, Some(Error::LeaseLost { .. }))
}

/// Waits until the table `go` exists. Retries while no connection is available.
pub async fn hold(pool: &PgPool) {
    while !matches!(sqlx::query_scalar("select exists (select from pg_class where relname = 'go')").fetch_one(pool).await, Ok(true)) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn effect(connection: &mut PgConnection, cx: &Context) -> JobResult {
    sqlx::query("insert into public.effect (job, attempt, pid) values ($1, $2, $3) /* own */")
        .bind(cx.id())
        .bind(i32::try_from(cx.attempt())?)
        .bind(std::process::id().cast_signed())
        .execute(connection)
        .await?;
    Ok(())
}
