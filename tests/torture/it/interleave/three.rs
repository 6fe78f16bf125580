//! Runs three statements on three connections. A fourth connection observes which session waits for which.

use std::{sync::Arc, time::Duration};

use sqlx::{Connection as _, PgConnection};
use tests::{TestDb, broken};
use tokio::task::JoinHandle;

use super::{
    fixture::{Fixture, Fixtures},
    maps,
    pair::{NO_LOCK, pid, retry_on_lock_timeout, run_committed, sqlstate},
    side_statement::schedule_violation,
    statement::Statement,
    tally::{Tally, matches_effects, stuck_keys, tally},
};

/// Event of a script: transaction 0, 1 or 2 begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Begins(usize),
    Commits(usize),
    RollsBack(usize),
}

use Event::{Begins, Commits, RollsBack};

impl Event {
    fn transaction(self) -> usize {
        match self {
            Begins(who) | Commits(who) | RollsBack(who) => who,
        }
    }
}

/// Scripts in which all three statements start before the first transaction ends. The transactions then end in order, and the first
/// transaction commits or rolls back.
pub(super) const MIDDLES: [[Event; 6]; 2] = [
    [Begins(0), Begins(1), Begins(2), Commits(0), Commits(1), Commits(2)],
    [Begins(0), Begins(1), Begins(2), RollsBack(0), Commits(1), Commits(2)],
];

/// Effects and waits of the three statements in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TripleOutcome {
    /// Number of rows or jobs that each statement affected, or `None` if its transaction did not commit.
    pub(super) counts: [Option<i64>; 3],
    /// Whether each statement waited for a lock of another statement.
    pub(super) waited: [bool; 3],
    /// Whether two statements waited at the same time.
    pub(super) queued: bool,
}

/// Session in which one of the three statements runs.
#[derive(Default)]
struct Session {
    pid: i32,
    /// Connection of the session, unless a statement is using it.
    on: Option<PgConnection>,
    running: Option<JoinHandle<(PgConnection, sqlx::Result<i64>)>>,
    /// Number of rows or jobs that the statement affected, if it has returned and its transaction is still open.
    open: Option<i64>,
    /// Whether the statement failed with a lock timeout and must be retried. Housekeeping also retries such statements.
    must_retry: bool,
}

/// Connections and fixtures of a test.
pub(super) struct TriplePlayer {
    sessions: [Session; 3],
    watch: PgConnection,
    fixtures: Fixtures,
    /// Tally of the restored fixture before any statement runs. `None` before the first run.
    before: Option<Tally>,
    now: TripleOutcome,
}

/// Time limit of a run. The server resolves a deadlock after one second, so no legitimate wait reaches this limit.
const MAX_WAIT: Duration = Duration::from_mins(5);

impl TriplePlayer {
    pub(super) async fn new(db: &TestDb) -> Self {
        let mut sessions = <[Session; 3]>::default();
        for session in &mut sessions {
            let mut on = PgConnection::connect(&db.url).await.unwrap();
            (session.pid, session.on) = (pid(&mut on).await, Some(on));
        }
        let watch = PgConnection::connect(&db.url).await.unwrap();
        Self { sessions, watch, fixtures: Fixtures::default(), before: None, now: TripleOutcome::default() }
    }

    /// Runs the three statements in the order of the script. Panics unless every job has exactly one entry, the counts match the reported
    /// effects, no ordering key is stuck, and the maps and schedules are consistent.
    pub(super) async fn play(&mut self, statements: [Statement; 3], script: &[Event]) -> TripleOutcome {
        let fixture = self.fixtures.set(&mut self.watch, &statements).await.unwrap();
        let before = match self.before {
            Some(before) => before,
            None => *self.before.insert(tally(&mut self.watch).await.unwrap()),
        };
        self.now = TripleOutcome::default();
        let played = tokio::time::timeout(MAX_WAIT, self.perform(statements, script, &fixture)).await;
        played.unwrap_or_else(|_| panic!("a statement still waits: {statements:?} {script:?}"));
        let what = || format!("{statements:?} {script:?}: {:?}", self.now);
        assert_eq!(broken(&mut self.watch).await.unwrap(), [], "{}", what());
        let found = tally(&mut self.watch).await.unwrap();
        let committed: Vec<_> =
            statements.into_iter().zip(self.now.counts).filter_map(|(statement, count)| Some((statement, count?))).collect();
        assert!(matches_effects(before, &committed, found), "counts do not match the effects: {} {before:?} {found:?}", what());
        assert_eq!(stuck_keys(&mut self.watch).await.unwrap(), [], "{}", what());
        assert_eq!(maps::violations(&mut self.watch).await.unwrap(), [], "{}", what());
        assert_eq!(schedule_violation(&mut self.watch, &committed).await.unwrap(), None, "{}", what());
        self.now
    }

    async fn perform(&mut self, statements: [Statement; 3], script: &[Event], fixture: &Arc<Fixture>) {
        let mut pending: Vec<Event> = Vec::new();
        for event in script {
            match event {
                Begins(who) => {
                    self.begin(*who, statements[*who], fixture);
                    self.wait_until_settled(statements).await;
                }
                end => pending.push(*end),
            }
            // Tries to end the pending transactions after every event. The statement of a pending transaction may still wait for a
            // transaction that the script ends later.
            while self.end_one(&mut pending).await {
                self.wait_until_settled(statements).await;
            }
        }
        while self.sessions.iter().any(|session| session.running.is_some()) {
            self.wait_until_settled(statements).await;
            self.end_one(&mut pending).await;
        }
        for end in pending {
            let session = &mut self.sessions[end.transaction()];
            assert!(std::mem::take(&mut session.must_retry), "{statements:?}: {end:?} never happened");
            let on = session.on.as_mut().unwrap();
            let count = retry_on_lock_timeout(async || run_committed(on, statements[end.transaction()], fixture).await).await;
            self.now.counts[end.transaction()] = Some(count.unwrap_or_else(|error| panic!("{statements:?}: {end:?}: {error}")));
        }
    }

    fn begin(&mut self, who: usize, statement: Statement, fixture: &Arc<Fixture>) {
        let session = &mut self.sessions[who];
        let (mut on, fixture) = (session.on.take().unwrap(), Arc::clone(fixture));
        session.running = Some(tokio::spawn(async move {
            let done = run_in_transaction(&mut on, statement, &fixture).await;
            (on, done)
        }));
    }

    /// Ends the first pending transaction whose statement has returned. Returns whether a transaction was ended.
    async fn end_one(&mut self, pending: &mut Vec<Event>) -> bool {
        let Some(at) = pending.iter().position(|end| self.sessions[end.transaction()].open.is_some()) else { return false };
        let end = pending.remove(at);
        let session = &mut self.sessions[end.transaction()];
        let (on, count) = (session.on.as_mut().unwrap(), session.open.take());
        if let Commits(who) = end {
            sqlx::query("commit").execute(on).await.unwrap();
            self.now.counts[who] = count;
        } else {
            sqlx::query("rollback").execute(on).await.unwrap();
        }
        true
    }

    /// Waits until every statement has returned or is waiting for another statement.
    async fn wait_until_settled(&mut self, statements: [Statement; 3]) {
        loop {
            for (session, statement) in self.sessions.iter_mut().zip(statements) {
                if !session.running.as_ref().is_some_and(JoinHandle::is_finished) {
                    continue;
                }
                let Some(running) = session.running.take() else { continue };
                let (mut on, done) = running.await.unwrap();
                match done {
                    Ok(count) => session.open = Some(count),
                    Err(error) if sqlstate(&error).as_deref() == Some(NO_LOCK) => {
                        sqlx::query("rollback").execute(&mut on).await.unwrap();
                        session.must_retry = true;
                    }
                    Err(error) => panic!("{statements:?}: {statement:?} failed, {:?}: {error}", sqlstate(&error)),
                }
                session.on = Some(on);
            }
            let running: Vec<i32> = self.sessions.iter().filter(|session| session.running.is_some()).map(|session| session.pid).collect();
            if running.is_empty() {
                return;
            }
            // Counts only waits for one of the three sessions. Waits for other sessions, such as autovacuum, end soon.
            let waiting = sqlx::query_scalar("select pid from unnest($1::int[]) pid where pg_blocking_pids(pid) && $2");
            let all = self.sessions.each_ref().map(|session| session.pid);
            let waiting: Vec<i32> = waiting.bind(&running).bind(&all[..]).fetch_all(&mut self.watch).await.unwrap();
            if waiting.len() == running.len() {
                for (session, waited) in self.sessions.iter().zip(&mut self.now.waited) {
                    *waited |= waiting.contains(&session.pid);
                }
                self.now.queued |= waiting.len() > 1;
                return;
            }
        }
    }
}

async fn run_in_transaction(on: &mut PgConnection, statement: Statement, fixture: &Fixture) -> sqlx::Result<i64> {
    sqlx::query("begin").execute(&mut *on).await?;
    statement.run(on, fixture).await
}
