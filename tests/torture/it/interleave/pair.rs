//! Runs two statements on two connections. A third connection observes which session waits for which.

use std::cell::Cell;

use queue_core::JobId;
use sqlx::{Connection as _, PgConnection, error::DatabaseError};
use tests::{TestDb, broken};

use super::{
    fixture::{Fixture, Fixtures},
    maps,
    side_statement::schedule_violation,
    statement::Statement,
    tally::stuck_keys,
};

/// Time at which the second statement starts: after the first transaction has committed, or while that transaction is open. For an open
/// transaction, the form also determines whether the transaction commits or rolls back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    After,
    DuringThenCommit,
    DuringThenRollback,
}

impl Form {
    pub(super) const ALL: [Self; 3] = [Self::After, Self::DuringThenCommit, Self::DuringThenRollback];
}

/// Effects and waits of the two statements in a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct PairOutcome {
    /// Number of rows or jobs that the first statement affected.
    pub(super) first: i64,
    pub(super) second: i64,
    /// Whether the second statement waited for the end of the first transaction.
    pub(super) waited: bool,
}

/// Connections and fixtures of a test.
pub(super) struct PairPlayer {
    a: PgConnection,
    b: PgConnection,
    watch: PgConnection,
    pids: [i32; 2],
    fixtures: Fixtures,
}

/// SQLSTATE for a lock that was not acquired within `lock_timeout`.
pub(super) const NO_LOCK: &str = "55P03";

pub(super) fn sqlstate(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(DatabaseError::code).map(std::borrow::Cow::into_owned)
}

/// Runs a statement, and repeats it after each lock timeout, as housekeeping does.
pub(super) async fn retry_on_lock_timeout<T>(mut statement: impl AsyncFnMut() -> sqlx::Result<T>) -> sqlx::Result<T> {
    loop {
        match statement().await {
            Err(error) if sqlstate(&error).as_deref() == Some(NO_LOCK) => {}
            done => return done,
        }
    }
}

impl PairPlayer {
    pub(super) async fn new(db: &TestDb) -> Self {
        let [mut a, mut b, watch] = [
            PgConnection::connect(&db.url).await.unwrap(),
            PgConnection::connect(&db.url).await.unwrap(),
            PgConnection::connect(&db.url).await.unwrap(),
        ];
        let pids = [pid(&mut a).await, pid(&mut b).await];
        Self { a, b, watch, pids, fixtures: Fixtures::default() }
    }

    /// Runs statement `b` concurrently with or after statement `a`, depending on `form`. Then panics if an invariant of the jobs, the
    /// ordering keys, the maps or the schedule is violated, or if a job is lost.
    pub(super) async fn play(&mut self, a: Statement, b: Statement, form: Form) -> PairOutcome {
        let fixture = self.fixtures.set(&mut self.watch, &[a, b]).await.unwrap();
        let outcome = self.both(a, b, form, &fixture).await;
        let what = format!("{a:?} {form:?} {b:?}: {outcome:?}");
        assert_eq!(broken(&mut self.watch).await.unwrap(), [], "{what}");
        assert_eq!(stuck_keys(&mut self.watch).await.unwrap(), [], "{what}");
        assert_eq!(maps::violations(&mut self.watch).await.unwrap(), [], "{what}");
        let committed = [(a, outcome.first), (b, outcome.second)];
        let committed = if form == Form::DuringThenRollback { &committed[1..] } else { &committed[..] };
        assert_eq!(schedule_violation(&mut self.watch, committed).await.unwrap(), None, "{what}");
        let twice = outcome.first > 0 && outcome.second > 0 && a.ends_the_lease() && b.ends_the_lease();
        assert!(!twice || form == Form::DuringThenRollback, "two verdicts took effect: {what}");
        if !a.forgets() && !b.forgets() {
            let discarded = [a, b].contains(&Statement::Discard);
            let parked = fixture.lease.jobs.first().filter(|_| [a, b].contains(&Statement::Park)).map(|job| job.id);
            let may_go = |id: &JobId| discarded && (fixture.dead.contains(id) || parked == Some(*id));
            let must = fixture.jobs.iter().filter(|id| !may_go(id)).copied().collect::<Vec<_>>();
            let unrecorded = committed.iter().filter(|(statement, _)| statement.leaves_no_record()).map(|(_, count)| count).sum::<i64>();
            let there = sqlx::query_scalar::<_, i64>("select count(*) from queue.job where id = any ($1)").bind(&must);
            let there = there.fetch_one(&mut self.watch).await.unwrap() + unrecorded;
            assert_eq!(there, i64::try_from(must.len()).unwrap(), "a job was lost: {what}");
        }
        outcome
    }

    async fn both(&mut self, first: Statement, second: Statement, form: Form, fixture: &Fixture) -> PairOutcome {
        let Self { a, b, watch, pids, .. } = self;
        // The transaction of the first statement stays open unless the form is `After`.
        let (open, count) = begin(a, first, fixture).await;
        if form == Form::After {
            open.commit().await.unwrap();
            let (open, other) = begin(b, second, fixture).await;
            open.commit().await.unwrap();
            return PairOutcome { first: count, second: other, waited: false };
        }
        let ended = Cell::new(false);
        let running = async {
            let done = run_committed(b, second, fixture).await;
            ended.set(true);
            done
        };
        let ending = async {
            let mut waited = false;
            while !ended.get() && !waited {
                let waits = sqlx::query_scalar("select $1 = any (pg_blocking_pids($2))").bind(pids[0]).bind(pids[1]);
                waited = waits.fetch_one(&mut *watch).await.unwrap();
            }
            if form == Form::DuringThenCommit {
                open.commit().await.unwrap();
            } else {
                open.rollback().await.unwrap();
            }
            waited
        };
        let (done, waited) = tokio::join!(running, ending);
        // Retries a statement whose lock timeout has expired.
        let done = match done {
            Err(error) if sqlstate(&error).as_deref() == Some(NO_LOCK) => {
                retry_on_lock_timeout(async || run_committed(b, second, fixture).await).await
            }
            done => done,
        };
        let other = done.unwrap_or_else(|error| panic!("{first:?} {form:?} {second:?}: {error}"));
        PairOutcome { first: count, second: other, waited }
    }
}

pub(super) async fn pid(on: &mut PgConnection) -> i32 {
    sqlx::query_scalar("select pg_backend_pid()").fetch_one(on).await.unwrap()
}

/// Executes one statement in its own transaction, and commits.
pub(super) async fn run_committed(on: &mut PgConnection, statement: Statement, fixture: &Fixture) -> sqlx::Result<i64> {
    let mut transaction = on.begin().await?;
    let count = statement.run(&mut transaction, fixture).await?;
    transaction.commit().await?;
    Ok(count)
}

/// Executes one statement in a transaction that stays open. Retries while autovacuum holds a lock.
async fn begin<'a>(on: &'a mut PgConnection, statement: Statement, fixture: &Fixture) -> (sqlx::Transaction<'a, sqlx::Postgres>, i64) {
    let mut transaction = on.begin().await.unwrap();
    loop {
        let mut point = transaction.begin().await.unwrap();
        match statement.run(&mut point, fixture).await {
            Ok(count) => {
                point.commit().await.unwrap();
                return (transaction, count);
            }
            Err(error) if sqlstate(&error).as_deref() == Some(NO_LOCK) => point.rollback().await.unwrap(),
            Err(error) => panic!("{statement:?}: {error}"),
        }
    }
}
