//! Functions that run the worker protocol step by step, in any order that a test needs. They execute the worker's SQL files.

use queue_core::{JobId, Store, runner::OrderingKey};
use sqlx::{FromRow, PgConnection, Row as _, postgres::PgRow};
use uuid::Uuid;

/// Result of a claim: a lease with its jobs.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Token of the lease.
    pub token: Uuid,
    /// Claimed jobs.
    pub jobs: Vec<ClaimedJob>,
}

/// Job under a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedJob {
    /// Id of the job.
    pub id: JobId,
    /// Lane of the job.
    pub lane: i64,
    /// Number of the attempt that begins with the claim.
    pub attempts: i16,
    /// Number of attempts that ended with a crash of the process.
    pub crashes: i16,
    /// Ordering key of the job.
    pub key: Option<OrderingKey>,
}

impl FromRow<'_, PgRow> for ClaimedJob {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let (id, lane, attempts, crashes) = (row.try_get("id")?, row.try_get("lane")?, row.try_get("attempts")?, row.try_get("crashes")?);
        Ok(Self { id, lane, attempts, crashes, key: OrderingKey::of(row.try_get("key")?, row.try_get("system")?) })
    }
}

/// Verdict in the form that the settle statements take.
#[derive(Clone, Copy, Debug)]
pub struct JobVerdict {
    /// Token of the lease.
    pub token: Uuid,
    /// Job that the verdict is for.
    pub job: ClaimedJob,
    /// One of `complete`, `forget`, `cancel`, `retry`, `snooze`, `release` and `dead`, or `plain` to complete without an output.
    pub verdict: &'static str,
}

impl JobVerdict {
    /// Returns whether the verdict frees the job's ordering key.
    fn frees(&self) -> bool {
        match self.verdict {
            "retry" | "snooze" | "release" => false,
            "dead" => self.job.key.is_some_and(|key| key.skips_dead),
            _ => true,
        }
    }
}

impl Lease {
    /// Returns the same verdict for all jobs of the lease.
    pub fn all(&self, verdict: &'static str) -> Vec<JobVerdict> {
        self.jobs.iter().map(|job| JobVerdict { token: self.token, job: *job, verdict }).collect()
    }

    /// Returns a verdict for one job of the lease.
    pub fn one(&self, index: usize, verdict: &'static str) -> JobVerdict {
        JobVerdict { token: self.token, job: self.jobs[index], verdict }
    }

    /// Returns the ids of the lease's jobs.
    pub fn ids(&self) -> Vec<JobId> {
        self.jobs.iter().map(|job| job.id).collect()
    }
}

/// All verdicts that [`JobVerdict::verdict`] accepts.
pub const VERDICTS: [&str; 8] = ["complete", "plain", "forget", "cancel", "retry", "snooze", "release", "dead"];

/// Returns the text of a statement for the default store.
pub(crate) fn sql(statement: &'static str) -> &'static str {
    Store::default().sql(statement)
}

/// Registers a worker with a lease of one minute.
pub async fn register(connection: &mut PgConnection) -> sqlx::Result<Uuid> {
    let worker = Uuid::new_v4();
    sqlx::query(sql(include_str!("../../queue-worker/sql/register.sql")))
        .bind(worker)
        .bind(60_000.0)
        .bind("by hand")
        .bind("nowhere")
        .bind(1)
        .bind("0")
        .bind(Vec::<String>::new())
        .bind(None::<Vec<String>>)
        .bind(None::<i32>)
        .bind(None::<i64>)
        .execute(connection)
        .await?;
    Ok(worker)
}

/// Sends a heartbeat. Returns whether the heartbeat was in time.
pub async fn beat(connection: &mut PgConnection, worker: Uuid) -> sqlx::Result<bool> {
    let beat = sqlx::query(sql(include_str!("../../queue-worker/sql/heartbeat.sql"))).bind(worker).bind(60_000.0);
    let beat = beat.bind(None::<i32>).bind(None::<i32>).bind(None::<i64>);
    Ok(beat.fetch_optional(connection).await?.is_some())
}

/// Reports progress of a job under a lease, with a checkpoint. Returns whether the report was accepted.
pub async fn note(connection: &mut PgConnection, token: Uuid, job: ClaimedJob, stage: &str) -> sqlx::Result<bool> {
    Ok(note_all(connection, &[(token, job, stage)]).await?.len() == 1)
}

/// Reports progress of several jobs in one statement. Each report has a stage, and a checkpoint if the stage is not empty. Returns the
/// accepted reports.
pub async fn note_all(connection: &mut PgConnection, reports: &[(Uuid, ClaimedJob, &str)]) -> sqlx::Result<Vec<(Uuid, JobId)>> {
    sqlx::query_as(sql(include_str!("../../queue-worker/sql/record_progress.sql")))
        .bind(reports.iter().map(|(token, ..)| *token).collect::<Vec<_>>())
        .bind(reports.iter().map(|(_, job, _)| job.id).collect::<Vec<_>>())
        .bind(reports.iter().map(|(_, job, _)| job.attempts).collect::<Vec<_>>())
        .bind(vec![None::<f64>; reports.len()])
        .bind(reports.iter().map(|(.., stage)| *stage).collect::<Vec<_>>())
        .bind(vec!["{}"; reports.len()])
        .bind(reports.iter().map(|(.., stage)| (!stage.is_empty()).then(|| format!("\"{stage}\""))).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
}

/// Deletes the progress of the finished jobs in `jobs`. Returns the number of deleted rows.
pub async fn clear_progress(connection: &mut PgConnection, jobs: &[JobId]) -> sqlx::Result<i64> {
    let clear = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/clear_progress.sql"))).bind(jobs);
    clear.fetch_one(connection).await
}

/// Expires the lease of a worker.
pub async fn silence(connection: &mut PgConnection, worker: Uuid) -> sqlx::Result<()> {
    let expired = sqlx::query("update queue.worker set expires_at = now() - interval '1 second' where id = $1").bind(worker);
    expired.execute(connection).await.map(drop)
}

/// Writes the idle row of a worker that waits for jobs of `queues`.
pub async fn sleep(connection: &mut PgConnection, worker: Uuid, queues: &[&str]) -> sqlx::Result<()> {
    let sleep = sqlx::query(sql(include_str!("../../queue-worker/sql/sleep.sql"))).bind(worker).bind(queues);
    sleep.execute(connection).await.map(drop)
}

/// Returns the id of the oldest running transaction, and the id of the next transaction.
pub async fn horizon(connection: &mut PgConnection) -> sqlx::Result<(i64, i64)> {
    sqlx::query_as(sql(include_str!("../../queue-worker/sql/horizon.sql"))).fetch_one(connection).await
}

/// Claims up to `most` jobs from all lanes except fair lanes. The jobs are sorted by id.
pub async fn claim(connection: &mut PgConnection, worker: Uuid, most: i32) -> sqlx::Result<Lease> {
    let lanes: Vec<i64> =
        sqlx::query_scalar("select distinct lane from queue.lane where not paired order by lane").fetch_all(&mut *connection).await?;
    let (floors, each) = (vec![0; lanes.len()], vec![most; lanes.len()]);
    claim_of(connection, worker, &lanes, &floors, &each, most).await
}

/// Claims jobs from `lanes`, starting at their floors, with a maximum per lane and in total.
pub async fn claim_of(
    connection: &mut PgConnection,
    worker: Uuid,
    lanes: &[i64],
    floors: &[i64],
    each: &[i32],
    most: i32,
) -> sqlx::Result<Lease> {
    let token = Uuid::new_v4();
    let claim = sqlx::query_as(sql(include_str!("../../queue-worker/sql/claim.sql")))
        .bind(token)
        .bind(worker)
        .bind(lanes)
        .bind(floors)
        .bind(each)
        .bind(most)
        .bind(i32::MAX)
        .bind(Vec::<i64>::new())
        .bind(i64::MIN)
        .bind(i64::MAX);
    let mut jobs: Vec<ClaimedJob> = claim.fetch_all(connection).await?;
    jobs.sort_unstable_by_key(|job| job.id);
    Ok(Lease { token, jobs })
}

/// Claims jobs below the floors of their lanes, in the block ranges `parts` of `ready`: at most `each` per lane and `most` in total.
pub async fn claim_late(
    connection: &mut PgConnection,
    worker: Uuid,
    (lanes, floors, each): (&[i64], &[i64], &[i32]),
    parts: &[(i64, i64)],
    most: i32,
) -> sqlx::Result<Lease> {
    let token = Uuid::new_v4();
    let (firsts, beyond): (Vec<i64>, Vec<i64>) = parts.iter().copied().unzip();
    let claim = sqlx::query_as(sql(include_str!("../../queue-worker/sql/claim_late.sql")))
        .bind(token)
        .bind(worker)
        .bind(lanes)
        .bind(floors)
        .bind(firsts)
        .bind(most)
        .bind(i32::MAX)
        .bind(beyond)
        .bind(each);
    let mut jobs: Vec<ClaimedJob> = claim.fetch_all(connection).await?;
    jobs.sort_unstable_by_key(|job| job.id);
    Ok(Lease { token, jobs })
}

/// Claims up to `most` jobs under a limit, from all lanes and all fair queues. Returns the number of claimed jobs.
pub async fn claim_limited(connection: &mut PgConnection, worker: Uuid, limit: &str, most: i32) -> sqlx::Result<usize> {
    claim_under(connection, sql(include_str!("../../queue-worker/sql/claim_limited.sql")), worker, limit, most).await
}

/// Claims up to `most` jobs under a per-key limit, from all lanes and all fair queues. Returns the number of claimed jobs.
pub async fn claim_keyed(connection: &mut PgConnection, worker: Uuid, limit: &str, most: i32) -> sqlx::Result<usize> {
    claim_under(connection, sql(include_str!("../../queue-worker/sql/claim_keyed.sql")), worker, limit, most).await
}

async fn claim_under(connection: &mut PgConnection, text: &'static str, worker: Uuid, limit: &str, most: i32) -> sqlx::Result<usize> {
    let lanes = "select distinct case when paired then queue.paired_lane(lane) else lane end, paired from queue.lane order by 2, 1";
    let lanes: Vec<(i64, bool)> = sqlx::query_as(lanes).fetch_all(&mut *connection).await?;
    let limit_id: i64 = sqlx::query_scalar("select queue.hash($1)").bind(limit).fetch_one(&mut *connection).await?;
    let claim = sqlx::query(text)
        .bind(Uuid::new_v4())
        .bind(worker)
        .bind(vec![limit_id])
        .bind(lanes.iter().map(|(lane, _)| *lane).collect::<Vec<_>>())
        .bind(vec![0_i64; lanes.len()])
        .bind(lanes.iter().map(|(_, is_fair)| *is_fair).collect::<Vec<_>>())
        .bind(vec![most; lanes.len()])
        .bind(most)
        .bind(Vec::<Uuid>::new())
        .bind(0_i64)
        .bind(None::<Vec<i64>>);
    let rows = claim.fetch_all(connection).await?;
    Ok(rows.iter().filter(|row| row.get::<Option<i64>, _>("id").is_some()).count())
}

/// Lease token of a rejected write, and the job id unless a whole lease was rejected.
pub type Refused = (Uuid, Option<JobId>);

/// Ends the claimed jobs that are cancelled or past their start deadline, and releases the others. Returns the rejected verdicts.
pub async fn expire_held(connection: &mut PgConnection, verdicts: &[JobVerdict]) -> sqlx::Result<Vec<Refused>> {
    let rows: Vec<(Uuid, JobId, Option<bool>)> = sqlx::query_as(sql(include_str!("../../queue-worker/sql/expire_held.sql")))
        .bind(verdicts.iter().map(|one| one.token).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|one| one.job.id).collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().filter(|(.., became)| became.is_none()).map(|(token, id, _)| (token, Some(id))).collect())
}

/// Settles as a worker does, with a separate statement for jobs that leave no record. Returns the rejected verdicts.
pub async fn settle(connection: &mut PgConnection, verdicts: &[JobVerdict]) -> sqlx::Result<Vec<Refused>> {
    let (forgotten, others): (Vec<JobVerdict>, Vec<JobVerdict>) = verdicts.iter().partition(|one| one.verdict == "forget");
    let mut refused = Vec::new();
    if !forgotten.is_empty() {
        refused = settle_forgotten(connection, &forgotten).await?;
    }
    if !others.is_empty() {
        refused.extend(settle_together(connection, &others).await?);
    }
    Ok(refused)
}

/// Settles all verdicts in one statement. Failed attempts have the error `as told`, and completed attempts have the output `1`. Retries
/// and snoozes wait for a minute. Returns the rejected verdicts.
pub async fn settle_together(connection: &mut PgConnection, verdicts: &[JobVerdict]) -> sqlx::Result<Vec<Refused>> {
    let fails = |verdict: &JobVerdict| matches!(verdict.verdict, "retry" | "dead");
    sqlx::query_as(sql(include_str!("../../queue-worker/sql/settle.sql")))
        .bind(verdicts.iter().map(|s| s.token).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|s| s.job.id.0).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|s| if s.verdict == "plain" { "complete" } else { s.verdict }).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|s| s.job.lane).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|s| s.job.attempts).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|s| s.job.crashes).collect::<Vec<_>>())
        .bind(vec![60_000.0; verdicts.len()])
        .bind(vec![7; verdicts.len()])
        .bind(verdicts.iter().map(|s| (s.verdict == "complete").then_some("1")).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|s| fails(s).then_some("as told")).collect::<Vec<_>>())
        .bind(verdicts.iter().map(|s| s.job.key.map(|key| key.id)).collect::<Vec<_>>())
        .bind(verdicts.iter().map(JobVerdict::frees).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
}

/// Settles jobs as completed without a record, regardless of their verdicts. Returns the rejected verdicts.
pub async fn settle_forgotten(connection: &mut PgConnection, verdicts: &[JobVerdict]) -> sqlx::Result<Vec<Refused>> {
    let ids = || verdicts.iter().map(|s| s.job.id.0);
    sqlx::query_as(sql(include_str!("../../queue-worker/sql/settle_forgotten.sql")))
        .bind(verdicts.iter().map(|s| s.token).collect::<Vec<_>>())
        .bind(ids().collect::<Vec<_>>())
        .bind(verdicts.iter().map(|s| s.job.key.map(|key| key.id)).collect::<Vec<_>>())
        .bind(ids().min())
        .bind(ids().max())
        .fetch_all(connection)
        .await
}

/// Turns the job of a rejected verdict into a dead letter. Returns whether the job is now dead, or `None` if the call was rejected.
pub async fn park(connection: &mut PgConnection, verdict: JobVerdict) -> sqlx::Result<Option<bool>> {
    sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/park.sql")))
        .bind(verdict.token)
        .bind(verdict.job.id)
        .bind(verdict.job.lane)
        .bind(verdict.job.attempts)
        .bind(verdict.job.crashes)
        .bind("as told")
        .fetch_optional(connection)
        .await
}

/// Settles whole leases as completed. Returns the rejected tokens.
pub async fn settle_leases(connection: &mut PgConnection, whole: &[Uuid]) -> sqlx::Result<Vec<Uuid>> {
    let jobs =
        sqlx::query_as(sql("select j.id, j.lane from queue.lease l join queue.job j on j.id = any (l.ids) where l.token = any ($1)"));
    let jobs: Vec<(i64, i64)> = jobs.bind(whole).fetch_all(&mut *connection).await?;
    let counts = "select coalesce((select cardinality(l.ids) from queue.lease l where l.token = t.token), 0)
      from unnest($1::uuid[]) with ordinality t (token, nth) order by t.nth";
    let counts: Vec<i32> = sqlx::query_scalar(counts).bind(whole).fetch_all(&mut *connection).await?;
    settle_leases_of(connection, whole, &jobs, &counts).await
}

/// Settles whole leases, with the job ids and lanes `jobs`, and with `counts` verdicts per lease. Returns the rejected tokens.
pub async fn settle_leases_of(
    connection: &mut PgConnection,
    whole: &[Uuid],
    jobs: &[(i64, i64)],
    counts: &[i32],
) -> sqlx::Result<Vec<Uuid>> {
    let (ids, lanes): (Vec<i64>, Vec<i64>) = jobs.iter().copied().unzip();
    let statement = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/settle_leases.sql")));
    statement.bind(whole).bind(ids).bind(lanes).bind(counts).fetch_all(connection).await
}

/// Settles verdicts like [`settle`], and the leases `whole` like [`settle_leases`]. Returns the rejected verdicts and leases.
pub async fn flush(connection: &mut PgConnection, verdicts: &[JobVerdict], whole: &[Uuid]) -> sqlx::Result<Vec<Refused>> {
    let mut refused = settle(connection, verdicts).await?;
    refused.extend(settle_leases(connection, whole).await?.into_iter().map(|token| (token, None)));
    Ok(refused)
}

/// Returns the number of rows of the given leases and jobs that other transactions have locked.
pub async fn locked_rows(connection: &mut PgConnection, tokens: &[Uuid], jobs: &[JobId]) -> sqlx::Result<usize> {
    let locked = sqlx::query(sql(include_str!("../../queue-worker/sql/locked_rows.sql"))).bind(tokens).bind(jobs);
    let locked = locked.fetch_all(connection).await?;
    Ok(locked.len())
}

/// Performs the first half of a recovery: locks the leases of workers whose heartbeat has expired. Returns the tokens of the leases.
pub async fn lock_silent(transaction: &mut PgConnection) -> sqlx::Result<Vec<Uuid>> {
    let found = sqlx::query(sql(include_str!("../../queue-worker/sql/expired_leases.sql"))).bind(100_i64).fetch_all(transaction).await?;
    found.iter().map(|row| row.try_get(0)).collect()
}

/// Performs the second half of a recovery: recovers the jobs of the leases. Returns the queue and job count per queue and job type.
pub async fn take_back(transaction: &mut PgConnection, tokens: &[Uuid]) -> sqlx::Result<Vec<(String, i64)>> {
    sqlx::query_as(sql(include_str!("../../queue-worker/sql/recover.sql"))).bind(tokens).bind(3_i16).fetch_all(transaction).await
}

/// Releases a claim whose reply was lost.
pub async fn give_back(connection: &mut PgConnection, token: Uuid) -> sqlx::Result<u64> {
    let statement = sqlx::query(sql(include_str!("../../queue-worker/sql/give_back.sql"))).bind(vec![token]);
    Ok(statement.execute(connection).await?.rows_affected())
}

/// Performs both halves of a recovery. Returns the number of recovered jobs.
pub async fn recover(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let mut transaction = sqlx::Connection::begin(connection).await?;
    let tokens = lock_silent(&mut transaction).await?;
    let jobs = take_back(&mut transaction, &tokens).await?.iter().map(|(_, jobs)| jobs).sum();
    transaction.commit().await?;
    Ok(jobs)
}

/// Returns the contents of most job tables as one text, which changes whenever the contents change.
pub async fn contents(connection: &mut PgConnection) -> sqlx::Result<String> {
    sqlx::query_scalar(
        "select coalesce(string_agg(line, e'\\n' order by line), '') from (
           select 'job ' || j::text as line from queue.job j union all select 'ready ' || r::text from queue.ready r
           union all select 'scheduled ' || s::text from queue.scheduled s union all select 'lease ' || l::text from queue.lease l
           union all select 'done ' || d::text from queue.done d union all select 'done ' || m::text from queue.done_many m
           union all select 'dead ' || d::text from queue.dead d union all select 'blocked ' || b::text from queue.blocked b
           union all select 'parked ' || p::text from queue.parked p
           union all select 'key ' || k::text from queue.active_key k
           union all select 'failure ' || f::text from queue.failure f
           union all select 'progress ' || p::text from queue.progress p
           union all select 'step ' || s::text from queue.step s union all select 'signal ' || s::text from queue.signal s
           union all select 'hint ' || h::text from queue.signal_hint h union all select 'end ' || h::text from queue.end_hint h
           union all select 'child ' || c::text from queue.child c
           union all select 'gather ' || g::text from queue.gather g union all select 'map_batch ' || b::text from queue.map_batch b
           union all select 'part ' || p::text from queue.gather_part p union all select 'hint ' || h::text from queue.gather_hint h
         ) lines",
    )
    .fetch_one(connection)
    .await
}
