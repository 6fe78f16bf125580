//! Executes each step on the tables and in the model, then compares both.

use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr as _,
};

use queue_core::JobId;
use sqlx::{Connection as _, PgConnection, error::DatabaseError, postgres::PgConnectOptions};
use tests::{
    TestDb, broken, operate,
    protocol::{self, ClaimedJob, JobVerdict, Lease},
};
use uuid::Uuid;

use super::{
    expect::{JobPlace, Model},
    op::{Age, LANES, LIMIT, Op, Step, VerdictOp},
    rules::KnownRules,
};

/// Sequence in progress, with its connection and its model.
pub(super) struct Player {
    pub(super) connection: PgConnection,
    pub(super) model: Model,
    /// Leases of all claims that returned jobs, including claims that were rolled back. A zombie may still use any of these leases.
    pub(super) leases: Vec<Lease>,
    workers: Vec<Uuid>,
    /// Rules that each worker has read.
    pub(super) known: BTreeMap<Uuid, KnownRules>,
    /// Id of the limit.
    pub(super) limit_id: i64,
    /// Whether the open transaction will be rolled back.
    losing: bool,
    /// Model lane of each lane id, and whether the id belongs to the solo lane for quarantined jobs. Claims visit lanes in the order of
    /// their ids.
    pub(super) lanes: BTreeMap<i64, (usize, bool)>,
}

pub(super) type Outcome = Result<&'static str, String>;

/// Query for one line per job, in the format of `Model::rows`. A job with two entries has two lines.
const ROWS: &str = "
with entry as (
  select id, format('ready lane=%s %s %s', lane, attempts, crashes) as line from queue.ready
  union all select id, format('scheduled lane=%s %s %s due=%s', lane, attempts, crashes, case when run_at <= now() then 'true' else 'false' end)
    from queue.scheduled
  union all select u.id, format('running %s %s %s', l.token, u.attempts, u.crashes)
    from queue.lease l cross join lateral unnest(l.ids, l.attempts, l.crashes) u (id, attempts, crashes)
  union all select id, format('%s %s output=%s', case when expired then 'expired' when cancelled then 'cancelled' else 'completed' end, attempts,
    case when output is null then 'false' else 'true' end) from queue.done
  union all select unnest(ids), 'completed 1 output=false' from queue.done_many
  union all select id, format('dead lane=%s %s %s', lane, attempts, crashes) from queue.dead
)
select format('%s %s failures=%s', j.id, coalesce(e.line, 'nowhere'), (select count(*) from queue.failure f where f.id = j.id))
from queue.job j left join entry e on e.id = j.id
order by j.id, e.line";

/// Query for the number of failure rows whose job no longer exists.
const ORPHANS: &str = "select count(*) from queue.failure f where not exists (select from queue.job j where j.id = f.id)";

const EMPTY: &str = "delete from queue.ready; delete from queue.scheduled; delete from queue.lease; delete from queue.done;
  delete from queue.done_many; delete from queue.dead; delete from queue.failure; delete from queue.job; delete from queue.lane;
  delete from queue.worker; delete from queue.expiry; delete from queue.paused; delete from queue.bound; select queue.forget_limiters();
  select queue.add_days(0)";

#[expect(clippy::needless_pass_by_value, reason = "passed to `map_err` by name")]
pub(super) fn fault(error: sqlx::Error) -> String {
    format!("database error: {error}")
}

pub(super) fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}:\n found    {found:?}\n expected {expected:?}")) }
}

/// Retries the statement while autovacuum holds a lock on a table.
async fn retry_while_locked<T>(mut act: impl AsyncFnMut() -> sqlx::Result<T>) -> Result<T, String> {
    loop {
        match act().await {
            Err(error) if error.as_database_error().and_then(DatabaseError::code).as_deref() == Some("55P03") => {}
            done => return done.map_err(fault),
        }
    }
}

/// Opens a connection with generic plans and without JIT, like a worker's connection, and drops all day partitions. Parallel workers are
/// disabled, because the planner would use them even though the tables are almost empty.
async fn connect(db: &TestDb) -> PgConnection {
    let planner = [("plan_cache_mode", "force_generic_plan"), ("jit", "off"), ("max_parallel_workers_per_gather", "0")];
    let mut connection = PgConnection::connect_with(&PgConnectOptions::from_str(&db.url).unwrap().options(planner)).await.unwrap();
    while retry_while_locked(async || operate::drop_day(&mut connection).await).await.unwrap() {}
    connection
}

impl Player {
    pub(super) async fn new(db: &TestDb, idle: Option<PgConnection>) -> Self {
        let mut connection = match idle {
            Some(connection) => connection,
            None => connect(db).await,
        };
        retry_while_locked(async || sqlx::raw_sql(EMPTY).execute(&mut connection).await).await.unwrap();
        let mut lanes = BTreeMap::new();
        for (index, (queue, priority)) in LANES.into_iter().enumerate() {
            for solo in [false, true] {
                let id = sqlx::query_scalar("select queue.lane_id($1, 'do', $2, $3)").bind(queue).bind(priority).bind(solo);
                lanes.insert(id.fetch_one(&mut connection).await.unwrap(), (index, solo));
            }
        }
        let limit_id = sqlx::query_scalar("select queue.hash($1)").bind(LIMIT).fetch_one(&mut connection).await.unwrap();
        let (model, leases, workers, known) = (Model::new(), Vec::new(), Vec::new(), BTreeMap::new());
        let mut player = Self { connection, model, leases, workers, known, limit_id, losing: false, lanes };
        for _ in 0..3 {
            let worker = player.register().await.unwrap();
            player.workers.push(worker);
        }
        player
    }

    /// Returns the connection, which the next sequence reuses.
    pub(super) fn leave(self) -> PgConnection {
        self.connection
    }

    /// Executes one step, and compares the tables with the model. Returns the name of the event.
    pub(super) async fn step(&mut self, step: &Step) -> Outcome {
        self.model.step();
        // Creating or dropping a day partition may need a retry, which is impossible in an open transaction.
        if !step.lost || matches!(step.op, Op::AddDays | Op::DropDay) {
            let what = self.perform(&step.op).await?;
            self.compare().await?;
            return Ok(what);
        }
        let (before, workers, known) = (self.model.clone(), self.workers.clone(), self.known.clone());
        self.control("begin").await?;
        self.losing = true;
        self.perform(&step.op).await?;
        self.compare().await.map_err(|fault| format!("before the rollback, {fault}"))?;
        self.control("rollback").await?;
        self.losing = false;
        (self.model, self.workers, self.known) = (before, workers, known);
        self.compare().await.map_err(|fault| format!("after the rollback, {fault}"))?;
        Ok("lost")
    }

    async fn control(&mut self, transaction: &'static str) -> Result<(), String> {
        sqlx::query(transaction).execute(&mut self.connection).await.map_err(fault).map(drop)
    }

    async fn compare(&mut self) -> Result<(), String> {
        let rows: Vec<String> = sqlx::query_scalar(ROWS).fetch_all(&mut self.connection).await.map_err(fault)?;
        let expected = self.model.rows(&self.lanes);
        if rows != expected {
            let (found, expected) = (BTreeSet::from_iter(rows), BTreeSet::from_iter(expected));
            let [extra, missing] = [found.difference(&expected), expected.difference(&found)].map(Vec::from_iter);
            return Err(format!("the tables contain\n  {extra:?}\nbut the model expects\n  {missing:?}"));
        }
        equal("the invariant is broken", &broken(&mut self.connection).await.map_err(fault)?, &Vec::new())?;
        let orphans: i64 = sqlx::query_scalar(ORPHANS).fetch_one(&mut self.connection).await.map_err(fault)?;
        equal("failures of jobs that are gone", &orphans, &0)
    }

    /// Checks that the operator's view of all jobs matches the model.
    pub(super) async fn compare_operator_view(&mut self) -> Result<(), String> {
        let query = sqlx::query_as("select id, state, queue, attempts::smallint from queue.jobs order by id");
        let seen: Vec<(JobId, String, String, i16)> = query.fetch_all(&mut self.connection).await.map_err(fault)?;
        equal("the view jobs shows", &seen, &self.model.seen())
    }

    pub(super) fn lease(&self, ago: Age) -> Option<&Lease> {
        self.leases.iter().rev().nth(ago % self.leases.len().max(1))
    }

    pub(super) fn ids(&self, agos: &[Age], fit: impl Fn(JobPlace) -> bool) -> Vec<JobId> {
        let jobs = &self.model.jobs;
        let fitting: Vec<JobId> = jobs.iter().rev().filter(|(_, job)| fit(job.place)).map(|(id, _)| *id).collect();
        let pick = |(turn, ago): (usize, &Age)| match turn % 2 {
            0 if !fitting.is_empty() => Some(fitting[ago % fitting.len()]),
            _ => jobs.keys().rev().nth(ago % jobs.len().max(1)).copied(),
        };
        let ids: BTreeSet<JobId> = agos.iter().enumerate().filter_map(pick).collect();
        ids.into_iter().collect()
    }

    async fn perform(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Enqueue(lane, later) => self.enqueue(*lane, *later).await,
            Op::EnqueueMany(jobs) => self.enqueue_many(jobs).await,
            Op::Claim(worker, most) => self.claim(self.workers[*worker], *most).await,
            Op::Settle(verdicts, whole) => self.settle_some(verdicts, *whole).await,
            Op::SettleAll(lease, verdict) => match self.lease(*lease) {
                Some(lease) => self.settle(lease.all(verdict), &[]).await,
                None => Ok("nothing"),
            },
            Op::GiveBack(leases) => self.give_back(leases).await,
            Op::Recover => self.recover().await,
            Op::Promote(most) => self.promote(*most).await,
            Op::MakeDue(job) => self.make_due(job).await,
            Op::Requeue(_) | Op::Cancel(_) | Op::Discard(_) | Op::Reopen(_) => self.operate(op).await,
            Op::Silence(worker) | Op::Retire(worker) | Op::Beat(worker) => self.pulse(op, self.workers[*worker]).await,
            Op::Orphan(lease) => match self.lease(*lease).and_then(|lease| self.model.holder(lease.token)) {
                Some(worker) => self.pulse(op, worker).await,
                None => Ok("nothing"),
            },
            Op::Register(slot) => {
                self.pulse(op, self.workers[*slot]).await?;
                self.workers[*slot] = self.register().await?;
                Ok("registered")
            }
            Op::EnqueueExpiring(lane) => self.enqueue_expiring(*lane).await,
            Op::MakeLate(jobs) => self.make_late(jobs).await,
            Op::ExpireDue => self.expire_due().await,
            Op::ExpireHeld(lease) => self.expire_held(*lease).await,
            Op::Pause(scope) => self.pause(*scope).await,
            Op::Resume(scope) => self.resume(*scope).await,
            Op::Vouch(worker) => self.vouch(self.workers[*worker]).await,
            Op::Limit(most) => self.limit(*most).await,
            Op::ClaimLimited(worker, most, how) => self.claim_limited(self.workers[*worker], *most, *how).await,
            Op::PruneDone | Op::PruneWorkers | Op::AddDays | Op::DropDay => self.run_housekeeping(op).await,
        }
    }

    /// Registers a worker that reads pauses and limits, as workers do before their first claim.
    async fn register(&mut self) -> Result<Uuid, String> {
        let worker = protocol::register(&mut self.connection).await.map_err(fault)?;
        self.model.register(worker);
        self.read_rules(worker).await?;
        Ok(worker)
    }

    async fn enqueue(&mut self, lane: usize, later: bool) -> Outcome {
        let (queue, priority) = LANES[lane];
        let id = operate::enqueue(&mut self.connection, queue, priority, later).await.map_err(fault)?;
        self.model.enqueue(id, lane, later).map(|()| "enqueued")
    }

    async fn enqueue_many(&mut self, jobs: &[(usize, bool)]) -> Outcome {
        let lanes = operate::ensure_lanes(&mut self.connection, &LANES).await.map_err(fault)?;
        let placed: Vec<(i64, bool)> = jobs.iter().map(|(lane, later)| (lanes[*lane], *later)).collect();
        let ids = operate::insert_all(&mut self.connection, &placed).await.map_err(fault)?;
        equal("ids", &ids.len(), &jobs.len())?;
        equal("ids in the order given", &ids.is_sorted(), &true)?;
        for (id, (lane, later)) in ids.into_iter().zip(jobs) {
            self.model.enqueue(id, *lane, *later)?;
        }
        Ok("enqueued many")
    }

    async fn settle_some(&mut self, items: &[VerdictOp], whole: Option<Age>) -> Outcome {
        let whole: Vec<Uuid> = whole.and_then(|ago| self.lease(ago)).map(|lease| lease.token).into_iter().collect();
        let whole: Vec<Uuid> = whole.into_iter().filter(|token| self.model.may_be_whole(*token)).collect();
        let mut verdicts: Vec<JobVerdict> = Vec::new();
        for item in items {
            let Some(lease) = self.lease(item.lease) else { continue };
            let mut job = lease.jobs[item.job % lease.jobs.len()];
            if let (true, [id]) = (item.of_another, &self.ids(&[item.job], |_| true)[..]) {
                let mine = lease.jobs.iter().find(|held| held.id == *id);
                job = mine.copied().unwrap_or(ClaimedJob { id: *id, ..job });
            }
            // A worker names a job only once per statement, either with the whole lease or individually.
            let twice = verdicts.iter().any(|other| other.token == lease.token && other.job.id == job.id);
            if !twice && !whole.contains(&lease.token) {
                verdicts.push(JobVerdict { token: lease.token, job, verdict: item.verdict });
            }
        }
        self.settle(verdicts, &whole).await
    }

    async fn settle(&mut self, verdicts: Vec<JobVerdict>, whole: &[Uuid]) -> Outcome {
        let refused = protocol::flush(&mut self.connection, &verdicts, whole).await.map_err(fault)?;
        let (count, refused) = (refused.len(), BTreeSet::from_iter(refused));
        equal("refused once each", &count, &refused.len())?;
        equal("refused", &refused, &self.model.settle(&verdicts, whole))?;
        let left = verdicts.iter().any(|one| !self.model.held(one.token).is_empty());
        Ok(match (refused.iter().any(|(_, id)| id.is_none()), refused.is_empty(), whole.is_empty()) {
            (true, ..) => "refused a whole lease",
            (false, false, _) => "refused",
            (false, true, false) => "settled a whole lease",
            (false, true, true) if left => "settled a part",
            (false, true, true) => "settled",
        })
    }

    async fn give_back(&mut self, leases: &[Age]) -> Outcome {
        let tokens: BTreeSet<Uuid> = leases.iter().filter_map(|ago| self.lease(*ago)).map(|lease| lease.token).collect();
        let tokens: Vec<Uuid> = tokens.into_iter().collect();
        let given_back = operate::give_back(&mut self.connection, &tokens).await.map_err(fault)?;
        equal("given back", &given_back, &i64::try_from(self.model.give_back(&tokens)).unwrap())?;
        Ok(if given_back > 0 { "gave back" } else { "gave back nothing" })
    }

    async fn recover(&mut self) -> Outcome {
        if !self.losing {
            self.control("begin").await?;
        }
        let tokens = protocol::lock_silent(&mut self.connection).await.map_err(fault)?;
        let recovered = protocol::take_back(&mut self.connection, &tokens).await.map_err(fault)?;
        if !self.losing {
            self.control("commit").await?;
        }
        let recovered: i64 = recovered.iter().map(|(_, jobs)| jobs).sum();
        let (jobs, convicted) = self.model.recover();
        equal("recovered", &recovered, &i64::try_from(jobs).unwrap())?;
        Ok(match (jobs, convicted) {
            (0, _) => "recovered nothing",
            (_, 0) => "recovered",
            _ => "convicted",
        })
    }

    async fn promote(&mut self, most: i64) -> Outcome {
        let scheduled = "select id from queue.scheduled";
        let before: Vec<JobId> = sqlx::query_scalar(scheduled).fetch_all(&mut self.connection).await.map_err(fault)?;
        let promoted = operate::promote(&mut self.connection, most).await.map_err(fault)?;
        let after: Vec<JobId> = sqlx::query_scalar(scheduled).fetch_all(&mut self.connection).await.map_err(fault)?;
        let chosen: BTreeSet<JobId> = before.into_iter().filter(|id| !after.contains(id)).collect();
        equal("promoted", &promoted, &i64::try_from(chosen.len()).unwrap())?;
        self.model.promote(usize::try_from(most).unwrap(), &chosen)?;
        Ok(if chosen.is_empty() { "promoted nothing" } else { "promoted" })
    }

    async fn make_due(&mut self, jobs: &[Age]) -> Outcome {
        for id in self.ids(jobs, |place| matches!(place, JobPlace::Scheduled { .. })) {
            let due = sqlx::query("update queue.scheduled set run_at = now() - interval '1 minute' where id = $1").bind(id);
            due.execute(&mut self.connection).await.map_err(fault)?;
            self.model.make_due(id);
        }
        Ok("made due")
    }

    /// Executes an operator statement, which must affect exactly those of the given jobs that are in a suitable state.
    async fn operate(&mut self, op: &Op) -> Outcome {
        let dead = |place| place == JobPlace::Dead;
        let is_finished = |place| matches!(place, JobPlace::Completed { .. } | JobPlace::Cancelled | JobPlace::Expired);
        let waits = |place| matches!(place, JobPlace::Ready(_) | JobPlace::Scheduled { .. });
        let (ids, what) = match op {
            Op::Requeue(agos) => (self.ids(agos, dead), "requeued"),
            Op::Cancel(agos) => (self.ids(agos, waits), "cancelled"),
            Op::Discard(agos) => (self.ids(agos, dead), "discarded"),
            Op::Reopen(ago) => (self.ids(&[*ago], is_finished), "reopened"),
            other => panic!("not an operator statement: {other:?}"),
        };
        let on = &mut self.connection;
        let (changed, expected) = match what {
            "requeued" => (operate::requeue(on, &ids).await, self.model.those(&ids, dead)),
            "cancelled" => (operate::cancel(on, &ids).await, self.model.those(&ids, waits)),
            "discarded" => (operate::discard(on, &ids).await, self.model.those(&ids, dead)),
            _ => {
                let Some(id) = ids.first() else { return Ok("nothing") };
                (
                    operate::reopen(on, *id).await.map(|back| if back { vec![*id] } else { Vec::new() }),
                    self.model.those(&[*id], is_finished),
                )
            }
        };
        let changed = changed.map_err(fault)?;
        equal("changed once each", &changed.len(), &expected.len())?;
        equal("changed", &BTreeSet::from_iter(changed), &expected)?;
        match what {
            "cancelled" => self.model.put(&expected, JobPlace::Cancelled),
            "discarded" => self.model.put(&expected, JobPlace::Gone),
            _ => self.model.requeue(&expected),
        }
        Ok(if expected.is_empty() { "nothing" } else { what })
    }

    async fn pulse(&mut self, op: &Op, worker: Uuid) -> Outcome {
        match op {
            Op::Beat(_) => {
                let beat = protocol::beat(&mut self.connection, worker).await.map_err(fault)?;
                equal("beat", &beat, &self.model.lives(worker))?;
                return Ok(if beat { "beat" } else { "beat too late" });
            }
            Op::Retire(_) => operate::retire(&mut self.connection, worker).await.map_err(fault)?,
            _ => protocol::silence(&mut self.connection, worker).await.map_err(fault)?,
        }
        self.model.lose(worker);
        Ok(if matches!(op, Op::Retire(_)) { "retired" } else { "silenced" })
    }

    async fn run_housekeeping(&mut self, op: &Op) -> Outcome {
        let on = &mut self.connection;
        match op {
            Op::PruneDone => {
                let pruned = operate::prune_done(on).await.map_err(fault)?;
                let expected = self.model.prune(false);
                equal("pruned", &pruned, &i64::try_from(expected).unwrap())?;
                Ok(if expected > 0 { "pruned" } else { "pruned nothing" })
            }
            Op::PruneWorkers => operate::prune_workers(on).await.map_err(fault).map(|()| "pruned workers"),
            Op::AddDays => {
                retry_while_locked(async || operate::add_days(on).await).await?;
                Ok(if self.model.add_days() { "added days" } else { "added no day" })
            }
            _ => {
                retry_while_locked(async || operate::drop_day(on).await).await?;
                Ok(if self.model.drop_day() > 0 { "dropped a day" } else { "dropped no history" })
            }
        }
    }
}
