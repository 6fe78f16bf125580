//! Worker side of the rules, which are the pauses and the limit. Workers read the rules, stop claiming from the covered lanes, and
//! acknowledge the rules. Also includes claims under the limit.

use std::collections::BTreeSet;

use queue_core::Store;
use sqlx::Row as _;
use tests::{
    limits,
    protocol::{self, ClaimedJob, Lease},
};
use uuid::Uuid;

use super::{
    expect::JobPlace,
    op::{LIMIT, LIMITED, SCOPES},
    play::{Outcome, Player, equal, fault},
    rules::{KnownRules, LimitedClaim},
};

fn sql(text: &'static str) -> &'static str {
    Store::default().sql(text)
}

impl Player {
    /// Reads the rules, as a worker does before its first claim and after each notification. Returns the number of the newest rule.
    pub(super) async fn read_rules(&mut self, worker: Uuid) -> Result<i64, String> {
        let read = sqlx::query(sql(include_str!("../../../../queue-worker/sql/pauses.sql"))).bind(worker);
        let rows = read.fetch_all(&mut self.connection).await.map_err(fault)?;
        let mut found = BTreeSet::new();
        for row in &rows {
            if let Some(number) = row.get::<Option<i64>, _>("number") {
                found.insert((number, row.get("queue"), row.get("job_type"), row.get::<Option<i64>, _>("limit_id").is_some()));
            }
        }
        equal("what a worker reads", &found, &self.model.rules())?;
        let scope = |queue: &str, job_type: &str| SCOPES.iter().position(|scope| *scope == (queue, job_type));
        let paused = found.iter().filter(|(.., is_limit)| !is_limit).filter_map(|(_, queue, job_type, _)| scope(queue, job_type)).collect();
        let newest = found.iter().map(|(number, ..)| *number).max().unwrap_or(0);
        let limited = found.iter().any(|(.., is_limit)| *is_limit);
        self.known.insert(worker, KnownRules { paused, limited });
        Ok(newest)
    }

    /// Lets a worker read all rules and acknowledge them up to the newest.
    pub(super) async fn vouch(&mut self, worker: Uuid) -> Outcome {
        let newest = self.read_rules(worker).await?;
        let there: bool = sqlx::query_scalar("select exists (select from queue.worker where id = $1)")
            .bind(worker)
            .fetch_one(&mut self.connection)
            .await
            .map_err(fault)?;
        let vouch = sqlx::query(sql(include_str!("../../../../queue-worker/sql/acknowledge_pauses.sql"))).bind(worker).bind(newest);
        let done = vouch.execute(&mut self.connection).await.map_err(fault)?;
        let news = there && self.model.vouch(worker, newest);
        equal("vouched", &(done.rows_affected() > 0), &news)?;
        self.compare_awaited_workers().await?;
        Ok(if news { "vouched" } else { "vouched again" })
    }

    async fn compare_awaited_workers(&mut self) -> Result<(), String> {
        for (scope, (queue, job_type)) in SCOPES.into_iter().enumerate() {
            let awaits = sqlx::query_scalar("select id from queue.pause_awaits($1, $2)").bind(queue).bind(job_type);
            let found: BTreeSet<Uuid> = awaits.fetch_all(&mut self.connection).await.map_err(fault)?.into_iter().collect();
            equal(&format!("workers awaited for {queue} {job_type}"), &found, &self.model.awaited(scope))?;
        }
        Ok(())
    }

    pub(super) async fn pause(&mut self, scope: usize) -> Outcome {
        let (queue, job_type) = SCOPES[scope];
        let pause = sqlx::query_scalar("select queue.pause($1, $2)").bind(queue).bind(job_type);
        let number = pause.fetch_one(&mut self.connection).await.map_err(fault)?;
        self.model.pause(scope, number)?;
        self.compare_awaited_workers().await.map(|()| "paused")
    }

    pub(super) async fn resume(&mut self, scope: usize) -> Outcome {
        let (queue, job_type) = SCOPES[scope];
        let resume = sqlx::query_scalar("select queue.resume($1, $2)").bind(queue).bind(job_type);
        let resumed: bool = resume.fetch_one(&mut self.connection).await.map_err(fault)?;
        equal("resumed", &resumed, &self.model.resume(scope))?;
        Ok(if resumed { "resumed" } else { "resumed nothing" })
    }

    pub(super) async fn limit(&mut self, most: Option<usize>) -> Outcome {
        let Some(most) = most else {
            let unset = limits::unset_limit(&mut self.connection, LIMIT).await.map_err(fault)?;
            equal("unset", &unset, &self.model.unset_limit())?;
            return Ok(if unset { "took a limit away" } else { "took no limit away" });
        };
        limits::set_limit(&mut self.connection, LIMIT, i32::try_from(most).unwrap()).await.map_err(fault)?;
        let number = sqlx::query_scalar("select number from queue.bound where name = $1").bind(LIMIT);
        let number = number.fetch_one(&mut self.connection).await.map_err(fault)?;
        self.model.set_limit(most, number).map(|()| "set a limit")
    }

    /// Returns the lanes from which a worker may claim, ordered by id. These are the lanes under the limit if `under_limit` is true, and
    /// the other lanes otherwise.
    fn lanes_of(&self, worker: Uuid, under_limit: bool) -> Vec<(i64, (usize, bool))> {
        let known = self.known.get(&worker).cloned().unwrap_or_default();
        self.lanes.iter().filter(|(_, (lane, _))| known.may(*lane, under_limit)).map(|(id, of)| (*id, *of)).collect()
    }

    pub(super) async fn claim(&mut self, worker: Uuid, most: i32) -> Outcome {
        let lanes = self.lanes_of(worker, false);
        let ids: Vec<i64> = lanes.iter().map(|(id, _)| *id).collect();
        let (floors, each) = (vec![0; ids.len()], vec![most; ids.len()]);
        let lease = protocol::claim_of(&mut self.connection, worker, &ids, &floors, &each, most).await.map_err(fault)?;
        let of: Vec<(usize, bool)> = lanes.into_iter().map(|(_, of)| of).collect();
        let closed = lease.jobs.iter().find(|job| self.model.is_closed(self.lanes[&job.lane].0));
        if let Some(job) = closed {
            return Err(format!("{job:?} is in a lane that must not be claimed"));
        }
        let room = if self.model.lives(worker) { usize::try_from(most).unwrap() } else { 0 };
        self.model.claim(worker, room, &lease, &of)?;
        Ok(match lease.jobs.is_empty() {
            true if self.model.lives(worker) => "claimed nothing",
            true => "claimed while silent",
            false => {
                self.leases.push(lease);
                "claimed"
            }
        })
    }

    /// Claims jobs under the limit for a worker that knows the limit. `reports_freed` makes the claim report all leases as freed. `belt`
    /// makes the claim read all permits again if too few are free.
    pub(super) async fn claim_limited(&mut self, worker: Uuid, most: i32, (reports_freed, belt): (bool, bool)) -> Outcome {
        let lanes = self.lanes_of(worker, true);
        if lanes.is_empty() {
            return Ok("nothing");
        }
        let freed: Vec<Uuid> = self.leases.iter().filter(|_| reports_freed).map(|lease| lease.token).collect();
        let read = "update queue.limiter set read_at = $1::text::timestamptz";
        let read = sqlx::query(read).bind(if belt { "-infinity" } else { "9999-12-31+00" });
        read.execute(&mut self.connection).await.map_err(fault)?;
        let token = Uuid::new_v4();
        let lease = Lease { token, jobs: self.take_limited((token, worker), &lanes, most, &freed).await? };
        let waiting = self.model.jobs.values().filter(|job| job.lane == LIMITED && matches!(job.place, JobPlace::Ready(_))).count();
        let most = usize::try_from(most).unwrap();
        let room = self.model.room(worker, waiting, &LimitedClaim { most, freed: &freed, belt });
        if self.model.is_paused(LIMITED) && !lease.jobs.is_empty() {
            return Err(format!("{lease:?} is in a paused lane"));
        }
        let of: Vec<(usize, bool)> = lanes.into_iter().map(|(_, of)| of).collect();
        self.model.claim(worker, room, &lease, &of)?;
        self.model.note_permits(token, lease.jobs.len())?;
        self.compare_permits().await?;
        Ok(match lease.jobs.is_empty() {
            true if waiting.min(most) == 0 => "claimed nothing",
            true => "found no room",
            false => {
                self.leases.push(lease);
                "claimed under a limit"
            }
        })
    }

    async fn take_limited(
        &mut self,
        (token, worker): (Uuid, Uuid),
        lanes: &[(i64, (usize, bool))],
        most: i32,
        freed: &[Uuid],
    ) -> Result<Vec<ClaimedJob>, String> {
        let claim = sqlx::query(sql(include_str!("../../../../queue-worker/sql/claim_limited.sql")))
            .bind(token)
            .bind(worker)
            .bind(vec![self.limit_id])
            .bind(lanes.iter().map(|(lane, _)| *lane).collect::<Vec<_>>())
            .bind(vec![0_i64; lanes.len()])
            .bind(vec![false; lanes.len()])
            .bind(vec![most; lanes.len()])
            .bind(most)
            .bind(freed)
            .bind(0_i64)
            .bind(None::<Vec<i64>>);
        let rows = claim.fetch_all(&mut self.connection).await.map_err(fault)?;
        let rows = rows.iter().filter(|row| row.get::<Option<i64>, _>("id").is_some());
        let job = |row: &sqlx::postgres::PgRow| ClaimedJob {
            id: row.get("id"),
            lane: row.get("lane"),
            attempts: row.get("attempts"),
            crashes: row.get("crashes"),
            key: None,
        };
        let mut jobs: Vec<ClaimedJob> = rows.map(job).collect();
        jobs.sort_unstable_by_key(|job| job.id);
        Ok(jobs)
    }

    async fn compare_permits(&mut self) -> Result<(), String> {
        let Some(expected) = self.model.permits() else { return Ok(()) };
        let permits = sqlx::query_as::<_, (Uuid, i32)>("select token, n from queue.permit where limit_id = $1").bind(self.limit_id);
        let found = permits.fetch_all(&mut self.connection).await.map_err(fault)?;
        let found = found.into_iter().map(|(token, count)| (token, usize::try_from(count).unwrap())).collect();
        equal("what the limit counts", &found, &expected)
    }
}
