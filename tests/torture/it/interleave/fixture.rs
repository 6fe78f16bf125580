//! Fixture on which the statements run: jobs in all states except cancelled and expired, an ordering key and a uniqueness key. The fixture
//! is restored before every run.

use std::{fmt::Write as _, sync::Arc};

use queue_core::JobId;
use sqlx::{AssertSqlSafe, PgConnection};
use tests::{
    fair_queues, operate,
    protocol::{self, Lease},
    signals, timetable,
};
use uuid::Uuid;

use super::{pair::retry_on_lock_timeout, statement::Statement};

/// Jobs in all states except cancelled and expired, each past its start deadline. One job is in a fair queue. A dead letter blocks its
/// ordering key, and a queued job holds a uniqueness key. A schedule is due.
pub(super) struct Fixture {
    pub(super) jobs: Vec<JobId>,
    pub(super) dead: Vec<JobId>,
    pub(super) completed: JobId,
    /// Two completed jobs in one history row.
    pub(super) completed_plainly: [JobId; 2],
    /// Parked job that has a pending signal. The job is also a parked part of a map.
    pub(super) parked: JobId,
    /// Lease with two unsettled jobs. The heartbeat of the lease's worker has expired.
    pub(super) lease: Lease,
    /// Worker with a valid heartbeat.
    pub(super) worker: Uuid,
}

/// Key that the fixture uses both as an ordering key and as a uniqueness key.
pub(super) const KEY: &str = "key";

/// Name of the limit on the job type `do`, which is the type of all jobs.
pub(super) const LIMIT: &str = "type:do";

/// Name of the per-key limit.
pub(super) const BY_KEY: &str = "queue:default";
const UNIQUE: &str = "insert into queue.unique_key (hash, id, held) values (queue.unique_hash('default', 'do', $2), $1, 'queued')";

const LATE: &str = "update queue.job set system = queue.with_expiry(system, now() - interval '1 minute');
  insert into queue.expiry (at, id) select now() - interval '1 minute', id from queue.job";
/// Statements that make the schedule due and add a missed tick that is nine days old. They also add an expired waiter, progress of
/// finished jobs, expired metrics and a published type.
const BESIDE: &str = "update queue.schedule set next_at = now() where name = 'due';
  insert into queue.fire (name, tick, fired_at, outcome) select 'due', now() - interval '9 days', now() - interval '9 days', 'missed';
  insert into queue.waiter (id, expires_at) values (gen_random_uuid(), now() - interval '1 minute');
  insert into queue.progress (id, attempt) select id, 1 from queue.done;
  insert into queue.tally_total select 10, now() - interval '2 days', 'default', 'do', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1;
  insert into queue.type_options (job_type, queue, priority, max_attempts) values ('published', 'here', 100, 20)";
/// Statement that adds a step of a finished job.
const STEP: &str = "insert into queue.step (id, name, attempt, at, ran_ms) values ($1, 'before', 1, now(), 0)";
/// Statement that parks a scheduled job, with a timeout that has passed.
const PARKED: &str = "with gone as (delete from queue.scheduled where id = $1 returning id, lane)
  insert into queue.parked (id, lane, attempts, crashes, since, run_at, names)
  select id, lane, 1, 0, now(), now() - interval '1 minute', '{go}' from gone";
/// Statement that adds a finished child, with a hint that records its end.
const CHILD: &str = "with hint as (insert into queue.end_hint (state, ids) values ('completed', array[$2]))
  insert into queue.child (parent, name, id) values ($1, 'spawned', $2)";
/// Statement that adds two maps. The running job has an open map without recent progress. Of the map's four parts, the first is finished
/// and counted in a hint, and the second is finished but not recorded yet. The third is ready, and the fourth is parked. The other map
/// belongs to a job that no longer exists.
const MAP: &str = "with put (parent, name, ids) as (values ($1::bigint, 'map', $2::bigint[]), (1, 'gone', '{2}')), g as (
    insert into queue.gather (parent, name, born, at, need, most, room) select p.parent, p.name, 1, now() - interval '1 hour', case p.parent when 1 then 1 else 5 end, 2, 0 from put p
  ), b as (
    insert into queue.map_batch (parent, name, chunk, ids) select p.parent, p.name, 0, p.ids from put p
  ), h as (
    insert into queue.gather_hint (parent, born, name, completed, dead, cancelled, freed) values ($1, 1, 'map', 1, 0, 0, 1)
  )
  insert into queue.gather_part (id, parent, born, name, nr, held)
  select u.id, $1, 1, 'map', u.nr - 1, u.nr = 4 from unnest($2::bigint[]) with ordinality u (id, nr) where u.nr > 1";
const DUE: &str = "update queue.scheduled set run_at = now() - interval '1 minute'";
const SILENT: &str = "update queue.worker set expires_at = now() - interval '2 hours' where id <> $1";

impl Fixture {
    /// Creates the fixture in empty tables.
    async fn set(on: &mut PgConnection) -> sqlx::Result<Self> {
        let lane = operate::ensure_lanes(on, &[("default", 100)]).await?[0];
        let mut jobs = vec![operate::enqueue_with(on, Some(KEY), None).await?.0];
        jobs.extend(operate::insert_all(on, &[(lane, false); 10]).await?);
        let [silent, _gone, worker] = [protocol::register(on).await?, protocol::register(on).await?, protocol::register(on).await?];
        let mut lease = protocol::claim(on, silent, 8).await?;
        let verdicts = ["dead", "complete", "plain", "plain", "dead", "dead"].into_iter().enumerate();
        let refused = protocol::settle(on, &verdicts.map(|(at, verdict)| lease.one(at, verdict)).collect::<Vec<_>>()).await?;
        assert_eq!(refused, []);
        lease.jobs.drain(..6);
        sqlx::query(SILENT).bind(worker).execute(&mut *on).await?;
        sqlx::query("select queue.set_limit($1, 1000)").bind(LIMIT).execute(&mut *on).await?;
        sqlx::query("select queue.set_limit($1, 1000, keyed => true)").bind(BY_KEY).execute(&mut *on).await?;
        sqlx::query("update queue.worker set paused_seen = (select p.last_value from queue.pause_seq p)").execute(&mut *on).await?;
        operate::sleep(on, worker).await?;
        timetable::put(on, 60).await?;
        sqlx::query(UNIQUE).bind(jobs[10]).bind(KEY).execute(&mut *on).await?;
        let later = operate::insert_all(on, &[(lane, true); 2]).await?;
        sqlx::query(PARKED).bind(later[0]).execute(&mut *on).await?;
        signals::signal(&mut *on, later[0]).await?;
        signals::signal(&mut *on, lease.jobs[0].id).await?;
        sqlx::query(DUE).execute(&mut *on).await?;
        let parked = later[0];
        sqlx::query(CHILD).bind(parked).bind(jobs[1]).execute(&mut *on).await?;
        sqlx::query(MAP).bind(lease.jobs[0].id).bind([jobs[3], jobs[2], jobs[10], parked]).execute(&mut *on).await?;
        sqlx::query(STEP).bind(jobs[0]).execute(&mut *on).await?;
        jobs.extend(later);
        jobs.push(operate::enqueue_with(on, Some(KEY), None).await?.0);
        jobs.push(fair_queues::enqueue_fair(on, KEY).await?);
        sqlx::raw_sql(LATE).execute(&mut *on).await?;
        for grace in [60, 61] {
            timetable::declare(on, worker, grace).await?;
            if grace == 60 {
                timetable::elect(on).await?;
            }
        }
        timetable::pause(on).await?;
        sqlx::raw_sql(BESIDE).execute(&mut *on).await?;
        sqlx::query(UNIQUE).bind(jobs[1]).bind("of one that has finished").execute(&mut *on).await?;
        let (completed, completed_plainly, dead) = (jobs[1], [jobs[2], jobs[3]], vec![jobs[0], jobs[4], jobs[5]]);
        Ok(Self { jobs, dead, completed, completed_plainly, parked, lease, worker })
    }
}

/// Tables that are restored before every run, because the fixture or a statement writes to them.
const TABLES: [&str; 41] = [
    "ready",
    "scheduled",
    "lease",
    "done",
    "done_many",
    "dead",
    "failure",
    "job",
    "lane",
    "worker",
    "idle",
    "retention",
    "blocked",
    "active_key",
    "key_hint",
    "unique_key",
    "schedule",
    "fire",
    "expiry",
    "limiter",
    "permit",
    "rate",
    "declaration",
    "paused",
    "waiter",
    "progress",
    "type_options",
    "bound_type",
    "tallied",
    "tally_total",
    "tally_source",
    "parked",
    "signal",
    "signal_hint",
    "child",
    "step",
    "gather",
    "map_batch",
    "gather_part",
    "gather_hint",
    "end_hint",
];

/// Columns to restore in the table `bound`, whose other columns the server generates.
const BOUND: &str = "(name, by_operator, number, revision, concurrency)";

/// Saved rows of the first fixture, which are copied to restore the fixture before every run. Creating the rows with the product's
/// statements would take longer than three runs.
#[derive(Default)]
pub(super) struct Fixtures {
    kept: Option<Arc<Fixture>>,
    /// Whether a day partition for today may exist. If it exists when the fixture is restored, it contains the history, which is then
    /// dropped with the partition instead of pruned.
    today: bool,
}

impl Fixtures {
    /// Restores the fixture for the given statements. Creates a day partition for today only if a statement requires the partition.
    pub(super) async fn set(&mut self, on: &mut PgConnection, statements: &[Statement]) -> sqlx::Result<Arc<Fixture>> {
        let today = statements.contains(&Statement::DropDay);
        if today {
            retry_on_lock_timeout(async || operate::add_days(on).await).await?;
        } else if self.today || self.kept.is_none() {
            while retry_on_lock_timeout(async || operate::drop_day(on).await).await? {}
        }
        self.today = today || statements.contains(&Statement::AddDays);
        if let Some(fixture) = &self.kept {
            sqlx::query("select public.set_again($1)").bind(fixture.worker).execute(on).await?;
            return Ok(Arc::clone(fixture));
        }
        let mut keep = String::from("delete from queue.bound; create table public.kept_bound (like queue.bound);");
        let of_bound = BOUND.trim_matches(['(', ')']);
        let mut again = format!("delete from queue.bound; insert into queue.bound {BOUND} select {of_bound} from public.kept_bound;");
        for table in TABLES {
            write!(keep, "delete from queue.{table}; create table public.kept_{table} (like queue.{table});").unwrap();
            write!(again, "delete from queue.{table}; insert into queue.{table} select * from public.kept_{table};").unwrap();
        }
        sqlx::raw_sql(AssertSqlSafe(keep)).execute(&mut *on).await?;
        let fixture = Arc::new(Fixture::set(&mut *on).await?);
        let mut fill = String::from("insert into public.kept_bound select * from queue.bound;");
        for table in TABLES {
            write!(fill, "insert into public.kept_{table} select * from queue.{table};").unwrap();
        }
        let alive = "update queue.worker set expires_at = now() + interval '1 minute' where id = living";
        let function = "create function public.set_again(living uuid) returns void language plpgsql as";
        let text = format!("{fill} {function} $$ begin {again} {alive}; end $$");
        sqlx::raw_sql(AssertSqlSafe(text)).execute(on).await?;
        self.kept = Some(Arc::clone(&fixture));
        Ok(fixture)
    }
}
