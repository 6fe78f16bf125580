//! Three statements, three connections, and a fourth that watches who waits for whom.

use std::{sync::Arc, time::Duration};

use sqlx::{Connection as _, PgConnection};
use tests::{TestDb, broken};
use tokio::task::JoinHandle;

use super::{
    act::Act,
    beside::out_of_order,
    fixture::{Fixture, Fixtures},
    maps,
    pair::{NO_LOCK, alone, code, patiently, pid},
    tally::{Tally, adds_up, standing, tally},
};

/// What happens next, to the first, second or third.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Begins(usize),
    Commits(usize),
    RollsBack(usize),
}

use Moment::{Begins, Commits, RollsBack};

impl Moment {
    fn who(self) -> usize {
        match self {
            Begins(who) | Commits(who) | RollsBack(who) => who,
        }
    }
}

/// All three are in the middle of their transactions, which then end one after the other, the first in either way.
pub(super) const MIDDLES: [[Moment; 6]; 2] = [
    [Begins(0), Begins(1), Begins(2), Commits(0), Commits(1), Commits(2)],
    [Begins(0), Begins(1), Begins(2), RollsBack(0), Commits(1), Commits(2)],
];

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// Of how many rows or jobs each was, if it committed.
    pub(super) counts: [Option<i64>; 3],
    /// Which waited for another.
    pub(super) waited: [bool; 3],
    /// Whether two waited at once.
    pub(super) queued: bool,
}

/// One of the three connections.
#[derive(Default)]
struct Hand {
    pid: i32,
    /// Unless a statement has it.
    on: Option<PgConnection>,
    acting: Option<JoinHandle<(PgConnection, sqlx::Result<i64>)>>,
    /// Its statement is through, and was of so many; its transaction is open.
    open: Option<i64>,
    /// It did not get a lock in time, and is to be called again, as housekeeping is.
    again: bool,
}

/// The connections of a test.
pub(super) struct Quartet {
    hands: [Hand; 3],
    watch: PgConnection,
    fixtures: Fixtures,
    /// Of a fixture as it is set.
    before: Option<Tally>,
    now: Outcome,
}

/// Longer than any wait that is not for ever: a deadlock is ended by the server after a second.
const FOR_EVER: Duration = Duration::from_mins(5);

impl Quartet {
    pub(super) async fn new(db: &TestDb) -> Self {
        let mut hands = <[Hand; 3]>::default();
        for hand in &mut hands {
            let mut on = PgConnection::connect(&db.url).await.unwrap();
            (hand.pid, hand.on) = (pid(&mut on).await, Some(on));
        }
        let watch = PgConnection::connect(&db.url).await.unwrap();
        Self { hands, watch, fixtures: Fixtures::default(), before: None, now: Outcome::default() }
    }

    /// Plays them; panics unless every job is then in one place, the tables hold just what they say they did, and no ordering key stands.
    pub(super) async fn play(&mut self, acts: [Act; 3], script: &[Moment]) -> Outcome {
        let fixture = self.fixtures.set(&mut self.watch, &acts).await.unwrap();
        let before = match self.before {
            Some(before) => before,
            None => *self.before.insert(tally(&mut self.watch).await.unwrap()),
        };
        self.now = Outcome::default();
        let played = tokio::time::timeout(FOR_EVER, self.perform(acts, script, &fixture)).await;
        played.unwrap_or_else(|_| panic!("somebody is left waiting: {acts:?} {script:?}"));
        let what = || format!("{acts:?} {script:?}: {:?}", self.now);
        assert_eq!(broken(&mut self.watch).await.unwrap(), [], "{}", what());
        let found = tally(&mut self.watch).await.unwrap();
        let committed: Vec<_> = acts.into_iter().zip(self.now.counts).filter_map(|(act, count)| Some((act, count?))).collect();
        assert!(adds_up(before, &committed, found), "it does not add up: {} {before:?} {found:?}", what());
        assert_eq!(standing(&mut self.watch).await.unwrap(), [], "{}", what());
        assert_eq!(maps::wrong(&mut self.watch).await.unwrap(), [], "{}", what());
        assert_eq!(out_of_order(&mut self.watch, &committed).await.unwrap(), None, "{}", what());
        self.now
    }

    async fn perform(&mut self, acts: [Act; 3], script: &[Moment], fixture: &Arc<Fixture>) {
        let mut put_off: Vec<Moment> = Vec::new();
        for moment in script {
            match moment {
                Begins(who) => {
                    self.begin(*who, acts[*who], fixture);
                    self.settle_down(acts).await;
                }
                end => put_off.push(*end),
            }
            // One that waits cannot end, and what it waits for may end only after it.
            while self.end_one(&mut put_off).await {
                self.settle_down(acts).await;
            }
        }
        while self.hands.iter().any(|hand| hand.acting.is_some()) {
            self.settle_down(acts).await;
            self.end_one(&mut put_off).await;
        }
        for end in put_off {
            let hand = &mut self.hands[end.who()];
            assert!(std::mem::take(&mut hand.again), "{acts:?}: {end:?} never came");
            let on = hand.on.as_mut().unwrap();
            let count = patiently(async || alone(on, acts[end.who()], fixture).await).await;
            self.now.counts[end.who()] = Some(count.unwrap_or_else(|error| panic!("{acts:?}: {end:?}: {error}")));
        }
    }

    fn begin(&mut self, who: usize, act: Act, fixture: &Arc<Fixture>) {
        let hand = &mut self.hands[who];
        let (mut on, fixture) = (hand.on.take().unwrap(), Arc::clone(fixture));
        hand.acting = Some(tokio::spawn(async move {
            let done = act_in_transaction(&mut on, act, &fixture).await;
            (on, done)
        }));
    }

    /// Ends the first of these transactions that is to be ended and whose statement is through; returns whether there was one.
    async fn end_one(&mut self, put_off: &mut Vec<Moment>) -> bool {
        let Some(at) = put_off.iter().position(|end| self.hands[end.who()].open.is_some()) else { return false };
        let end = put_off.remove(at);
        let hand = &mut self.hands[end.who()];
        let (on, count) = (hand.on.as_mut().unwrap(), hand.open.take());
        if let Commits(who) = end {
            sqlx::query("commit").execute(on).await.unwrap();
            self.now.counts[who] = count;
        } else {
            sqlx::query("rollback").execute(on).await.unwrap();
        }
        true
    }

    /// Until every statement is through, or waits for a lock.
    async fn settle_down(&mut self, acts: [Act; 3]) {
        loop {
            for (hand, act) in self.hands.iter_mut().zip(acts) {
                if !hand.acting.as_ref().is_some_and(JoinHandle::is_finished) {
                    continue;
                }
                let Some(acting) = hand.acting.take() else { continue };
                let (mut on, done) = acting.await.unwrap();
                match done {
                    Ok(count) => hand.open = Some(count),
                    Err(error) if code(&error).as_deref() == Some(NO_LOCK) => {
                        sqlx::query("rollback").execute(&mut on).await.unwrap();
                        hand.again = true;
                    }
                    Err(error) => panic!("{acts:?}: {act:?} failed, {:?}: {error}", code(&error)),
                }
                hand.on = Some(on);
            }
            let acting: Vec<i32> = self.hands.iter().filter(|hand| hand.acting.is_some()).map(|hand| hand.pid).collect();
            if acting.is_empty() {
                return;
            }
            // For one another: what the server's own housekeeping has locked is soon free.
            let waiting = sqlx::query_scalar("select pid from unnest($1::int[]) pid where pg_blocking_pids(pid) && $2");
            let all = self.hands.each_ref().map(|hand| hand.pid);
            let waiting: Vec<i32> = waiting.bind(&acting).bind(&all[..]).fetch_all(&mut self.watch).await.unwrap();
            if waiting.len() == acting.len() {
                for (hand, waited) in self.hands.iter().zip(&mut self.now.waited) {
                    *waited |= waiting.contains(&hand.pid);
                }
                self.now.queued |= waiting.len() > 1;
                return;
            }
        }
    }
}

async fn act_in_transaction(on: &mut PgConnection, act: Act, fixture: &Fixture) -> sqlx::Result<i64> {
    sqlx::query("begin").execute(&mut *on).await?;
    act.run(on, fixture).await
}
