//! Transactional job type whose payload selects the handler's actions. The job's effect is a row that the handler writes in its
//! transaction.

use std::time::Duration;

use queue_core::{Context, Failure, Handler, Job as _, JobResult, job};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Executor as _};

use crate::{Act, Do};

/// Job that writes a row to the table `effect`, and then follows the script that `how` selects.
#[job(transactional, max_attempts = 2, backoff = fixed("1ms"), timeout = "20s", output = String)]
#[derive(Serialize, Deserialize)]
pub struct Within {
    /// Name of the script.
    pub how: String,
}

impl Handler for Within {
    async fn run(self, cx: &Context) -> JobResult<String> {
        let mut tx = cx.transaction().await;
        sqlx::query("insert into effect (job, attempt, pid) values ($1, $2, $3)")
            .bind(cx.id())
            .bind(i32::try_from(cx.attempt())?)
            .bind(std::process::id().cast_signed())
            .execute(&mut *tx)
            .await?;
        let child = || Do { act: Act::Ok(String::new()) };
        match self.how.as_str() {
            "hold" => loop {
                if sqlx::query_scalar::<_, bool>("select exists (select from pg_class where relname = 'go') /* effect */")
                    .fetch_one(&mut *tx)
                    .await?
                {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            },
            "fail" => return Err("as told".into()),
            "fail first" if cx.attempt() == 1 => return Err("as told".into()),
            "terminal" => return Err(Failure::terminal("as told")),
            "snooze" => return Err(Failure::snooze(Duration::from_hours(1))),
            "panic" => panic!("as told"),
            "abort" => std::process::abort(),
            "hang" => tokio::time::timeout(Duration::from_millis(50), std::future::pending()).await?,
            // The future of the statement is dropped while the statement is running.
            "sleep in sql" => {
                tokio::time::timeout(Duration::from_millis(50), tx.execute("select pg_sleep(1)")).await??;
            }
            "bad sql" => {
                tx.execute("select 1 / 0").await?;
            }
            "swallow" => drop(tx.execute("select 1 / 0").await),
            "deferred" => {
                tx.execute("create temporary table once (n int unique deferrable initially deferred) on commit drop").await?;
                tx.execute("insert into once values (1), (1)").await?;
            }
            "all immediate" => drop(tx.execute("set constraints all immediate").await),
            "fail for its session" => {
                tx.execute("select pg_terminate_backend(pg_backend_pid())").await?;
            }
            "lose its session" => drop(tx.execute("select pg_terminate_backend(pg_backend_pid())").await),
            "rollback by hand" => {
                tx.execute("rollback").await?;
            }
            by_hand if by_hand.contains("by hand,") || by_hand == "commit by hand" => ends_by_hand(by_hand, &mut tx).await?,
            "beside" => {
                sqlx::query("insert into effect (job) values (0)").execute(cx.pool()).await?;
            }
            "fail in nested" => {
                let mut inner = tx.begin().await?;
                inner.execute("insert into effect select * from effect").await?;
                return Err("as told".into());
            }
            "impatient" => {
                tx.execute("set local statement_timeout = '40ms'; set local lock_timeout = '40ms'; set local enable_seqscan = on").await?;
            }
            "child" => {
                child().enqueue(&mut tx).await?;
            }
            "fail with child" => {
                child().enqueue(&mut tx).await?;
                return Err("as told".into());
            }
            _ => {}
        }
        Ok(self.how)
    }
}

/// Ends the transaction with SQL. Then writes another row if the script `how` requires that.
async fn ends_by_hand(how: &str, tx: &mut sqlx::PgConnection) -> JobResult {
    if how.contains("in a chain") {
        tx.execute("rollback and chain").await?;
        tx.execute("insert into effect (job) values (0)").await?;
        tx.execute("commit").await?;
        return Ok(());
    }
    let ended = tx.execute(if how.starts_with("commit") { "commit" } else { "rollback" }).await;
    if how.ends_with("then write") {
        tx.execute("insert into effect (job) values (0)").await?;
        return Ok(());
    }
    ended?;
    Ok(())
}
