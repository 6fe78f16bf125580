//! Helpers for tests of claims under limits. A test case is a list of steps, each of which runs a statement or checks a claim: its jobs,
//! and the reason why the limit is closed afterwards.

use std::collections::BTreeMap;

use queue_core::Store;
use sqlx::{Executor as _, PgConnection, Row as _};
use tests::{
    Sql as _, TestDb, fair_queues,
    protocol::{register, settle_leases},
};
use uuid::Uuid;

/// Result of a claim under limits.
#[derive(Debug)]
pub(super) struct LimitedClaim {
    pub(super) token: Uuid,
    pub(super) ids: Vec<i64>,
    /// Number of jobs by fair key. Jobs without a fair key count under the empty key.
    pub(super) of: BTreeMap<String, i64>,
    pub(super) reached: Option<i64>,
    pub(super) closed: Option<String>,
    pub(super) wait_ms: Option<f64>,
    pub(super) within_ms: Option<i64>,
    pub(super) floors: Option<Vec<i64>>,
}

/// Lane of the type `t`: its queue, whether it is fair, its floor, and the maximum number of jobs to claim. For a fair lane, the fair id to
/// continue after takes the place of the floor.
pub(super) type LaneOf<'a> = (&'a str, bool, i64, i32);

#[derive(Clone, Copy)]
pub(super) struct ClaimArguments<'a> {
    pub(super) by_key: bool,
    pub(super) limits: &'a [&'a str],
    pub(super) lanes: &'a [LaneOf<'a>],
    pub(super) most: i32,
    /// Tokens of ended leases.
    pub(super) freed: &'a [Uuid],
    /// Expected time in ms until the claimed jobs start.
    pub(super) slack: i64,
    /// Position of the first permit that the claim reads for each limit, or `None` to read all permits.
    pub(super) floors: Option<&'a [i64]>,
}

pub(super) async fn ask(on: &mut PgConnection, worker: Uuid, ask: ClaimArguments<'_>) -> sqlx::Result<LimitedClaim> {
    let (token, ClaimArguments { lanes, .. }) = (Uuid::new_v4(), ask);
    let text = if ask.by_key {
        include_str!("../../../queue-worker/sql/claim_keyed.sql")
    } else {
        include_str!("../../../queue-worker/sql/claim_limited.sql")
    };
    let limit_ids = "select queue.hash(n) from unnest($1::text[]) n order by 1";
    let limit_ids: Vec<i64> = sqlx::query_scalar(limit_ids).bind(ask.limits).fetch_all(&mut *on).await?;
    // Under a per-key limit, only quarantined jobs are outside of the fair queue.
    let ids = "select queue.lane_id(q, 't', 100, $3 and not l) from unnest($1::text[], $2::bool[]) with ordinality u (q, l, n) order by n";
    let is_fair: Vec<bool> = lanes.iter().map(|lane| lane.1).collect();
    let ids = sqlx::query_scalar(ids).bind(lanes.iter().map(|lane| lane.0).collect::<Vec<_>>()).bind(&is_fair).bind(ask.by_key);
    let ids: Vec<i64> = ids.fetch_all(&mut *on).await?;
    let claim = sqlx::query(Store::default().sql(text)).bind(token).bind(worker).bind(limit_ids).bind(ids);
    let claim = claim.bind(lanes.iter().map(|lane| lane.2).collect::<Vec<_>>()).bind(is_fair);
    let claim = claim.bind(lanes.iter().map(|lane| lane.3).collect::<Vec<_>>()).bind(ask.most).bind(ask.freed).bind(ask.slack);
    let rows = claim.bind(ask.floors).fetch_all(&mut *on).await?;
    let (ids, of) = (Vec::new(), BTreeMap::new());
    let mut claimed = LimitedClaim { token, ids, of, reached: None, closed: None, wait_ms: None, within_ms: None, floors: None };
    for row in rows {
        match (row.get::<Option<i64>, _>("id"), row.get::<Option<i64>, _>("lane")) {
            (Some(id), _) => claimed.ids.push(id),
            (None, Some(_)) => claimed.reached = row.get("fair_id"),
            _ => {
                (claimed.closed, claimed.wait_ms, claimed.within_ms) = (row.get("closed"), row.get("wait_ms"), row.get("within_ms"));
                claimed.floors = row.get("permit_floors");
            }
        }
    }
    let of = "select coalesce(payload ->> 'k', ''), count(*) from queue.job where id = any ($1) group by 1";
    claimed.of = sqlx::query_as(of).bind(&claimed.ids).fetch_all(&mut *on).await?.into_iter().collect();
    Ok(claimed)
}

/// Claims up to `most` jobs from the queues under unkeyed limits.
pub(super) async fn claim(
    on: &mut PgConnection,
    worker: Uuid,
    limits: &[&str],
    queues: &[&str],
    most: i32,
    freed: &[Uuid],
) -> sqlx::Result<LimitedClaim> {
    let lanes: Vec<LaneOf> = queues.iter().map(|queue| (*queue, false, 0, most)).collect();
    ask(on, worker, ClaimArguments { by_key: false, limits, lanes: &lanes, most, freed, slack: 0, floors: None }).await
}

/// Claims up to `most` jobs from the fair lane of `queue` under per-key limits, starting after the fair id `after`.
pub(super) async fn claim_from(
    on: &mut PgConnection,
    (worker, queue, after): (Uuid, &str, i64),
    limits: &[&str],
    most: i32,
    freed: &[Uuid],
) -> sqlx::Result<LimitedClaim> {
    let lanes = &[(queue, true, after, most)];
    ask(on, worker, ClaimArguments { by_key: true, limits, lanes, most, freed, slack: 0, floors: None }).await
}

/// Claims like [`claim_from`] from the default queue, starting after the fair id 0.
pub(super) async fn claim_keyed(
    on: &mut PgConnection,
    worker: Uuid,
    limits: &[&str],
    most: i32,
    freed: &[Uuid],
) -> sqlx::Result<LimitedClaim> {
    claim_from(on, (worker, "default", 0), limits, most, freed).await
}

/// Returns a connection with sequential scans disabled and a lock timeout of one second.
pub(super) async fn connect(url: &str) -> PgConnection {
    let mut on = <PgConnection as sqlx::Connection>::connect(url).await.unwrap();
    on.run("set synchronous_commit = off; set lock_timeout = '1s'; set enable_seqscan = off").await;
    on
}

/// Creates a database with `jobs` jobs of the type `t`, and registers a worker that has acknowledged every limit.
pub(super) async fn with(jobs: i32) -> (TestDb, PgConnection, Uuid) {
    let db = TestDb::new().await;
    let mut on = connect(&db.url).await;
    on.run(&format!("select queue.enqueue('t', '{{}}') from generate_series(1, {jobs})")).await;
    let worker = register(&mut on).await.unwrap();
    knows(&mut on, worker).await;
    (db, on, worker)
}

pub(super) async fn knows(on: &mut PgConnection, worker: Uuid) {
    on.run(&format!("update queue.worker set paused_seen = 9223372036854775807 where id = '{worker}'")).await;
}

/// Enqueues one job of the type `t` for each key.
pub(super) async fn fill(on: &mut PgConnection, queue: &str, keys: impl IntoIterator<Item = &str>) {
    for key in keys {
        let enqueue = format!("select queue.enqueue('t', '{{\"k\": \"{key}\"}}', '{{\"fair\": \"{key}\", \"queue\": \"{queue}\"}}')");
        on.run(&enqueue).await;
    }
}

pub(super) fn counts<const N: usize>(of: [(&str, i64); N]) -> BTreeMap<String, i64> {
    of.into_iter().map(|(key, count)| (key.to_owned(), count)).collect()
}

/// Parses the expected jobs: `a4 c2` means four jobs of key `a` and two jobs of key `c`, and `3` means three jobs without a key.
fn parse(keys: &str) -> BTreeMap<String, i64> {
    let split = |part: &str| {
        let at = part.find(|letter: char| letter.is_ascii_digit()).expect("each key has its count");
        (part[..at].to_owned(), part[at..].parse().expect("a count is a number"))
    };
    keys.split_whitespace().map(split).collect()
}

/// Returns the number of permits in use.
pub(super) async fn held(db: &TestDb) -> i64 {
    db.count("select coalesce(sum(n), 0)::bigint from queue.permit").await
}

/// Runs a statement that must fail. Returns the violated constraint.
pub(super) async fn refused(on: &mut PgConnection, statement: &'static str) -> String {
    let error = on.execute(statement).await.unwrap_err();
    error.as_database_error().and_then(|error| error.constraint()).unwrap_or_default().to_owned()
}

/// Step of a test case.
pub(super) enum Step {
    /// Runs statements.
    Run(&'static str),
    /// Enqueues jobs in a queue. The second text contains the number of jobs for each fair key.
    Fill(&'static str, &'static str),
    /// Moves jobs into the fair queues of their keys. Jobs without a key share one fair queue.
    MoveToFairLanes,
    /// Claims up to this number of jobs from the default queue under the limit of the type. The second field is the expected number of
    /// claimed jobs for each fairness key. The third field is the reason why the limit is closed afterwards, or `None` if it is open.
    Takes(i32, &'static str, Option<&'static str>),
    /// Like `Takes`, but under a per-key limit.
    TakesByKey(i32, &'static str, Option<&'static str>),
    /// Like `Takes`, but from the given queue and under the given limits. The flag selects per-key limits.
    TakesUnder(bool, &'static [&'static str], &'static str, i32, &'static str, Option<&'static str>),
    /// Ends the lease of the claim with this index and reports the lease to the next claim.
    Ends(usize),
    /// Checks that a query returns this value.
    Count(&'static str, i64),
}

/// Runs the steps on a new database.
pub(super) async fn play(name: &str, steps: &[Step]) {
    let (db, mut on, worker) = with(0).await;
    let (mut tokens, mut freed) = (Vec::new(), Vec::new());
    for (number, step) in steps.iter().enumerate() {
        let (by_key, limits, queue, most, of, closed) = match step {
            Step::Run(statements) => {
                on.run(statements).await;
                continue;
            }
            Step::Fill(queue, keys) => {
                for (key, count) in parse(keys) {
                    let (fair, k) =
                        if key.is_empty() { <_>::default() } else { (format!(", \"fair\": \"{key}\""), format!("\"k\": \"{key}\"")) };
                    let enqueue = format!(
                        "select queue.enqueue('t', '{{{k}}}', '{{\"queue\": \"{queue}\"{fair}}}') from generate_series(1, {count})"
                    );
                    on.run(&enqueue).await;
                }
                continue;
            }
            Step::MoveToFairLanes => {
                fair_queues::move_to_fair_lanes(&mut on, 100).await.unwrap();
                continue;
            }
            Step::Ends(claim) => {
                settle_leases(&mut on, &tokens[*claim..=*claim]).await.unwrap();
                freed.push(tokens[*claim]);
                continue;
            }
            Step::Count(query, count) => {
                assert_eq!(db.count(query).await, *count, "{name}, step {number}: {query}");
                continue;
            }
            Step::Takes(most, of, closed) => (false, &["type:t"][..], "default", *most, of, closed),
            Step::TakesByKey(most, of, closed) => (true, &["type:t"][..], "default", *most, of, closed),
            Step::TakesUnder(by_key, limits, queue, most, of, closed) => (*by_key, *limits, *queue, *most, of, closed),
        };
        let lanes = &[(queue, by_key, if by_key { i64::MIN } else { 0 }, most)];
        let claimed =
            ask(&mut on, worker, ClaimArguments { by_key, limits, lanes, most, freed: &freed, slack: 0, floors: None }).await.unwrap();
        assert_eq!((&claimed.of, claimed.closed.as_deref()), (&parse(of), *closed), "{name}, step {number}");
        tokens.push(claimed.token);
        freed.clear();
    }
    db.finish().await;
}
