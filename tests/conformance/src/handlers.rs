//! Handlers of a run's jobs. The handlers write rows to the table `effect` in the user's schema, and keep notes in the memory of this
//! process.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use queue_core::{
    Context, Failure, Handler, Job as _, JobResult, Store, TerminalExt as _,
    batch::{BatchContext, BatchHandler, JobBatch},
    durable::Durable,
    sqlx::{AssertSqlSafe, PgConnection},
};
use tokio::time::sleep;

use super::{
    jobs::{
        After, Both, Checkpointed, ContextReport, Counted, Echo, Fair, First, Gone, Hooked, Keyed, Lax, Limited, LogWriter, Mapped, Mapper,
        OneEach, Own, Parent, Piece, Receives, Restarting, Sealed, Sleeps, Slow, Steps, Ticks, Together, Try, Versioned, Waits, Within,
        echo,
    },
    lock,
    world::IDLE,
};

/// Message of intentional panics.
pub(super) const PANIC: &str = "intentional panic";

/// State passed to the handlers. The handlers record their calls in the state.
#[derive(Clone, Debug)]
pub(super) struct HandlerState {
    pub(super) store: Store,
    app: String,
    notes: Arc<Mutex<HashMap<String, Vec<String>>>>,
}

impl HandlerState {
    pub(super) fn new(store: Store, app: String) -> Self {
        Self { store, app, notes: Arc::default() }
    }

    /// Returns the schema of the user's tables.
    pub(super) fn app(&self) -> &str {
        &self.app
    }

    /// Adds a note under the name `of`. Returns the number of earlier notes under that name.
    pub(super) fn note(&self, of: &str, text: impl Into<String>) -> usize {
        let mut notes = lock(&self.notes);
        let notes = notes.entry(of.to_owned()).or_default();
        notes.push(text.into());
        notes.len() - 1
    }

    pub(super) fn noted(&self, of: &str) -> Vec<String> {
        lock(&self.notes).get(of).cloned().unwrap_or_default()
    }

    async fn effect(&self, on: &mut PgConnection, job: queue_core::JobId, n: i64) -> Result<(), queue_core::sqlx::Error> {
        let insert = format!("insert into {}.effect values ($1, $2)", self.app);
        queue_core::sqlx::query(AssertSqlSafe(insert)).bind(job).bind(n).execute(on).await.map(drop)
    }
}

fn given(cx: &Context) -> &HandlerState {
    cx.state::<HandlerState>()
}

impl Handler for Echo {
    async fn run(self, cx: &Context) -> JobResult<String> {
        given(cx).note("echo", &*self.text);
        Ok(self.text)
    }
}

impl Handler for Try {
    async fn run(self, cx: &Context) -> JobResult<u32> {
        let calls = given(cx).note(&format!("try {}", cx.id()), cx.attempt().to_string());
        let is_first = calls == 0;
        match self.first {
            First::Fail if is_first => Err("intentional failure at the first attempt".into()),
            First::Always => Err("intentional failure at every attempt".into()),
            First::Panic if is_first => panic!("{PANIC}"),
            First::Hang if is_first => std::future::pending().await,
            First::RetryIn if is_first => Err(Failure::retry_in(Duration::from_millis(30), "intentional retry")),
            First::SlowDown if is_first => Err(Failure::slow_down(Duration::from_millis(30), "intentional slow-down")),
            First::Snooze if is_first => Err(Failure::snooze(Duration::from_millis(30))),
            First::Terminal => "no number".parse::<u32>().terminal(),
            _ => Ok(cx.attempt()),
        }
    }
}

impl Handler for Slow {
    async fn run(self, cx: &Context) -> JobResult<String> {
        cx.progress(0.5);
        cx.stage("half");
        cx.event("row");
        cx.event_by("row", 2);
        cx.reporter().event("reported");
        tokio::select! {
            () = cx.cancelled().cancelled() => Err(format!("{:?}", cx.cancelled().reason()).into()),
            () = sleep(Duration::from_millis(self.ms)) => Ok("slept".to_owned()),
        }
    }
}

impl Handler for Checkpointed {
    async fn run(self, cx: &Context) -> JobResult<u32> {
        if let Some(left) = cx.last_checkpoint::<u32>().await? {
            return Ok(left);
        }
        cx.checkpoint(&41_u32).await?;
        Err("after the checkpoint".into())
    }
}

impl Handler for ContextReport {
    async fn run(self, cx: &Context) -> JobResult<BTreeMap<String, String>> {
        let one: i64 = queue_core::sqlx::query_scalar("select 1::bigint").fetch_one(cx.pool()).await?;
        let values = [
            ("id", cx.id().to_string()),
            ("job_type", cx.job_type().to_owned()),
            ("version", cx.version().to_string()),
            ("attempt", cx.attempt().to_string()),
            ("max_attempts", cx.max_attempts().to_string()),
            ("is_last_attempt", cx.is_last_attempt().to_string()),
            ("in order", (cx.enqueued_at() <= cx.claimed_at()).to_string()),
            ("meta", cx.meta().get("tenant").map(ToString::to_string).unwrap_or_default()),
            ("pool", one.to_string()),
            ("state", cx.try_state::<HandlerState>().is_some().to_string()),
            ("no state", cx.try_state::<u8>().is_none().to_string()),
        ];
        Ok(values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

impl Handler for Within {
    async fn run(self, cx: &Context) -> JobResult<i64> {
        let mut tx = cx.transaction().await;
        given(cx).effect(&mut tx, cx.id(), self.n).await?;
        echo(format!("within {}", self.n)).enqueue(&mut tx).store(given(cx).store).await?;
        if self.fails_first && cx.attempt() == 1 {
            return Err("intentional failure at the first attempt".into());
        }
        Ok(self.n)
    }
}

impl Handler for Own {
    async fn run(self, cx: &Context) -> JobResult<i64> {
        if cx.attempt() == 1 {
            let mut dropped = cx.begin().await?;
            given(cx).effect(&mut dropped, cx.id(), -1).await?;
            drop(dropped);
            return Err("intentional failure at the first attempt".into());
        }
        let mut tx = cx.begin().await?;
        given(cx).effect(&mut tx, cx.id(), self.n).await?;
        if self.dies {
            return Err(tx.fail("intentional terminal failure").await);
        }
        echo(format!("own {}", self.n)).enqueue(&mut tx).store(given(cx).store).await?;
        tx.complete(self.n).await
    }
}

impl BatchHandler for Together {
    async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
        let size = batch.len();
        let is_checked = cx.job_type() == "conf_batch" && cx.try_state::<HandlerState>().is_some() && cx.cancelled().reason().is_none();
        queue_core::sqlx::query("select 1").execute(cx.pool()).await?;
        cx.state::<HandlerState>().note("batch", size.to_string());
        for job in batch.iter_mut() {
            if job.payload().n < 0 {
                job.fail(Failure::terminal("negative"));
            } else if is_checked && !job.is_judged() && !job.is_cancelled() {
                job.complete(size);
            }
        }
        Ok(())
    }
}

impl Handler for Steps {
    async fn run(self, cx: &Durable) -> JobResult<Vec<u64>> {
        let given = given(cx);
        let count = |name: &str| given.note(&format!("{name} {}", cx.id()), "") as u64;
        let revision = cx.revision("steps", 3).await?;
        let first = cx.step("first", async { Ok::<_, Failure>(count("first")) }).await?;
        let id = cx.id();
        cx.step_tx("second", async |tx| given.effect(tx, id, 2).await).await?;
        if cx.attempt() == 1 {
            return Err("intentional failure between the steps".into());
        }
        let third = cx.step(("third", 1), async { Ok::<_, Failure>(u64::from(cx.journaled("first"))) }).await?;
        Ok(vec![first, third, u64::from(revision), u64::from(!cx.key("first").is_empty())])
    }
}

impl Handler for Sleeps {
    async fn run(self, cx: &Durable) -> JobResult<u64> {
        let calls = given(cx).note(&format!("sleeps {}", cx.id()), "") as u64;
        cx.sleep("nap", Duration::from_millis(self.ms)).await;
        Ok(calls)
    }
}

impl Handler for Receives {
    async fn run(self, cx: &Durable) -> JobResult<Option<String>> {
        let word = cx.receive::<String>("word");
        Ok(match self.timeout_ms {
            Some(ms) => word.timeout(Duration::from_millis(ms)).await,
            None => Some(word.await),
        })
    }
}

impl Handler for Restarting {
    async fn run(self, cx: &Durable) -> JobResult<u32> {
        cx.step("round", async { Ok::<_, Failure>(()) }).await?;
        if self.left > 0 {
            cx.restart(Restarting { left: self.left - 1, rounds: self.rounds + 1 }).await;
        }
        Ok(self.rounds)
    }
}

impl Handler for Parent {
    async fn run(self, cx: &Durable) -> JobResult<Vec<String>> {
        let well = cx.spawn("well", echo("a child")).priority(120).meta("of", "parent").await?;
        let ill = cx.spawn("ill", Piece { n: 0, dies: true }).await?;
        let is_known = well.handle().id() == well.id();
        let (well, ill) = (well.join().await?, ill.outcome().await?);
        Ok(vec![well, ill.map_or_else(|error| error.to_string(), |n| n.to_string()), is_known.to_string()])
    }
}

impl Handler for Waits {
    async fn run(self, cx: &Durable) -> JobResult {
        cx.spawn("unserved", echo("never")).queue(IDLE).await?.join().await?;
        Ok(())
    }
}

impl Handler for Mapper {
    async fn run(self, cx: &Durable) -> JobResult<Mapped> {
        let pieces = (0..self.parts).map(|n| Piece { n, dies: n % 3 == 2 });
        let parts = cx.map("pieces", pieces).in_flight(self.most).await?;
        let total = parts.total();
        let ended = parts.join().await?;
        let (mut outputs, mut pages) = (Vec::new(), ended.outputs());
        while let Some(page) = pages.next_page().await? {
            outputs.extend(page.into_iter().map(|(_, output)| output.ok()));
        }
        Ok(Mapped { total, completed: ended.completed, dead: ended.dead, outputs })
    }
}

impl Handler for Piece {
    async fn run(self, _: &Context) -> JobResult<u32> {
        if self.dies { Err(Failure::terminal("intentional terminal failure")) } else { Ok(self.n) }
    }
}

impl Handler for Both {
    async fn run(self, _: &Context) -> JobResult<String> {
        let right = self.right.get().cloned().unwrap_or_default();
        Ok(format!("{} {right}", self.left.value()?))
    }
}

impl Handler for After {
    async fn run(self, _: &Context) -> JobResult<String> {
        match self.before.ended() {
            Some(state) => Ok(state.to_owned()),
            None => Ok(self.before.into_value()?.to_string()),
        }
    }
}

impl Handler for Counted {
    async fn run(self, _: &Context) -> JobResult<u64> {
        let counts = self.counts.into_value()?;
        Ok(counts.completed * 100 + counts.dead)
    }
}

impl Handler for Fair {
    async fn run(self, cx: &Context) -> JobResult {
        given(cx).note("fair", self.tenant);
        Ok(())
    }
}

impl Handler for Keyed {
    async fn run(self, cx: &Context) -> JobResult {
        given(cx).note(&format!("keyed {}", self.key), self.n.to_string());
        Ok(())
    }
}

impl Handler for OneEach {
    async fn run(self, cx: &Context) -> JobResult {
        given(cx).note("unique", self.text);
        Ok(())
    }
}

impl Handler for Limited {
    async fn run(self, cx: &Context) -> JobResult {
        given(cx).note("limited", format!("begin {}", self.n));
        sleep(Duration::from_millis(60)).await;
        given(cx).note("limited", format!("end {}", self.n));
        Ok(())
    }
}

impl Handler for LogWriter {
    async fn run(self, cx: &Context) -> JobResult {
        tracing::info!("a line of job {}", cx.id());
        Ok(())
    }
}

impl Handler for Versioned {
    async fn run(self, cx: &Context) -> JobResult<String> {
        Ok(format!("{} of version {}", self.words.join(" "), cx.version()))
    }
}

impl Handler for Sealed {
    async fn run(self, _: &Context) -> JobResult<usize> {
        Ok(self.card.len())
    }
}

impl Handler for Gone {
    async fn run(self, cx: &Context) -> JobResult {
        given(cx).note("gone", "");
        Ok(())
    }
}

impl Handler for Lax {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

impl Handler for Ticks {
    async fn run(self, cx: &Context) -> JobResult {
        given(cx).note("ticks", cx.tick().map_or_else(String::new, |tick| tick.schedule));
        Ok(())
    }
}

impl Handler for Hooked {
    async fn run(self, cx: &Context) -> JobResult<Option<String>> {
        Ok(cx.meta().get("hooked").map(ToString::to_string))
    }
}
