//! Two statements, two connections, and a third that watches who waits for whom.

use std::cell::Cell;

use queue_core::JobId;
use sqlx::{Connection as _, PgConnection, error::DatabaseError};
use tests::{TestDb, broken};

use super::{
    act::Act,
    beside::out_of_order,
    fixture::{Fixture, Fixtures},
    maps,
    tally::standing,
};

/// When the second begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    After,
    DuringThenCommit,
    DuringThenRollback,
}

impl Form {
    pub(super) const ALL: [Self; 3] = [Self::After, Self::DuringThenCommit, Self::DuringThenRollback];
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Of how many rows or jobs the first was, and the second.
    pub(super) first: i64,
    pub(super) second: i64,
    /// Whether the second waited for the end of the first.
    pub(super) waited: bool,
}

/// The connections of a test.
pub(super) struct Trio {
    a: PgConnection,
    b: PgConnection,
    watch: PgConnection,
    pids: [i32; 2],
    fixtures: Fixtures,
}

/// What a lock that was not to be had within `lock_timeout` is reported as.
pub(super) const NO_LOCK: &str = "55P03";

pub(super) fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(DatabaseError::code).map(std::borrow::Cow::into_owned)
}

/// Again, as housekeeping does, until its locks are to be had.
pub(super) async fn patiently<T>(mut act: impl AsyncFnMut() -> sqlx::Result<T>) -> sqlx::Result<T> {
    loop {
        match act().await {
            Err(error) if code(&error).as_deref() == Some(NO_LOCK) => {}
            done => return done,
        }
    }
}

impl Trio {
    pub(super) async fn new(db: &TestDb) -> Self {
        let [mut a, mut b, watch] = [
            PgConnection::connect(&db.url).await.unwrap(),
            PgConnection::connect(&db.url).await.unwrap(),
            PgConnection::connect(&db.url).await.unwrap(),
        ];
        let pids = [pid(&mut a).await, pid(&mut b).await];
        Self { a, b, watch, pids, fixtures: Fixtures::default() }
    }

    /// Plays `b` against `a`; panics unless every job is then in one place, and none is lost.
    pub(super) async fn play(&mut self, a: Act, b: Act, form: Form) -> Outcome {
        let fixture = self.fixtures.set(&mut self.watch, &[a, b]).await.unwrap();
        let outcome = self.both(a, b, form, &fixture).await;
        let what = format!("{a:?} {form:?} {b:?}: {outcome:?}");
        assert_eq!(broken(&mut self.watch).await.unwrap(), [], "{what}");
        assert_eq!(standing(&mut self.watch).await.unwrap(), [], "{what}");
        assert_eq!(maps::wrong(&mut self.watch).await.unwrap(), [], "{what}");
        let committed = [(a, outcome.first), (b, outcome.second)];
        let committed = if form == Form::DuringThenRollback { &committed[1..] } else { &committed[..] };
        assert_eq!(out_of_order(&mut self.watch, committed).await.unwrap(), None, "{what}");
        let twice = outcome.first > 0 && outcome.second > 0 && a.ends_the_lease() && b.ends_the_lease();
        assert!(!twice || form == Form::DuringThenRollback, "a verdict counted twice: {what}");
        if !a.forgets() && !b.forgets() {
            let discarded = [a, b].contains(&Act::Discard);
            let parked = fixture.lease.jobs.first().filter(|_| [a, b].contains(&Act::Park)).map(|job| job.id);
            let may_go = |id: &JobId| discarded && (fixture.dead.contains(id) || parked == Some(*id));
            let must = fixture.jobs.iter().filter(|id| !may_go(id)).copied().collect::<Vec<_>>();
            let unrecorded = committed.iter().filter(|(act, _)| act.leaves_no_record()).map(|(_, count)| count).sum::<i64>();
            let there = sqlx::query_scalar::<_, i64>("select count(*) from queue.job where id = any ($1)").bind(&must);
            let there = there.fetch_one(&mut self.watch).await.unwrap() + unrecorded;
            assert_eq!(there, i64::try_from(must.len()).unwrap(), "a job was lost: {what}");
        }
        outcome
    }

    async fn both(&mut self, first: Act, second: Act, form: Form, fixture: &Fixture) -> Outcome {
        let Self { a, b, watch, pids, .. } = self;
        // Kept open for as long as the form says.
        let (open, count) = begin(a, first, fixture).await;
        if form == Form::After {
            open.commit().await.unwrap();
            let (open, other) = begin(b, second, fixture).await;
            open.commit().await.unwrap();
            return Outcome { first: count, second: other, waited: false };
        }
        let ended = Cell::new(false);
        let acting = async {
            let done = alone(b, second, fixture).await;
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
        let (done, waited) = tokio::join!(acting, ending);
        // One that does not wait for long is called again.
        let done = match done {
            Err(error) if code(&error).as_deref() == Some(NO_LOCK) => patiently(async || alone(b, second, fixture).await).await,
            done => done,
        };
        let other = done.unwrap_or_else(|error| panic!("{first:?} {form:?} {second:?}: {error}"));
        Outcome { first: count, second: other, waited }
    }
}

pub(super) async fn pid(on: &mut PgConnection) -> i32 {
    sqlx::query_scalar("select pg_backend_pid()").fetch_one(on).await.unwrap()
}

/// One statement in a transaction of its own.
pub(super) async fn alone(on: &mut PgConnection, act: Act, fixture: &Fixture) -> sqlx::Result<i64> {
    let mut transaction = on.begin().await?;
    let count = act.run(&mut transaction, fixture).await?;
    transaction.commit().await?;
    Ok(count)
}

/// One statement in a transaction that stays open; tried again if the server's housekeeping was in its way.
async fn begin<'a>(on: &'a mut PgConnection, act: Act, fixture: &Fixture) -> (sqlx::Transaction<'a, sqlx::Postgres>, i64) {
    let mut transaction = on.begin().await.unwrap();
    loop {
        let mut point = transaction.begin().await.unwrap();
        match act.run(&mut point, fixture).await {
            Ok(count) => {
                point.commit().await.unwrap();
                return (transaction, count);
            }
            Err(error) if code(&error).as_deref() == Some(NO_LOCK) => point.rollback().await.unwrap(),
            Err(error) => panic!("{act:?}: {error}"),
        }
    }
}
