//! Three statements at once: those that move the same job, and any; a sample of both. `QUEUE_TEST_TRIPLES=20000` plays all of the first kind, in
//! every order, and so many of the second; `QUEUE_TEST_SEED` chooses others.

use super::{
    act::Act,
    kinds::acts,
    three::{MIDDLES, Moment, Quartet},
};
use fastrand::Rng;
use tests::TestDb;

/// What was seen in many plays.
#[derive(Debug, Default)]
struct Seen {
    plays: usize,
    /// In which somebody waited, and in which two did at once.
    waits: usize,
    queues: usize,
}

impl Seen {
    async fn play(&mut self, quartet: &mut Quartet, acts: [Act; 3], script: &[Moment]) {
        let outcome = quartet.play(acts, script).await;
        self.plays += 1;
        self.waits += usize::from(outcome.waited.contains(&true));
        self.queues += usize::from(outcome.queued);
    }
}

/// One in so many is played, unless all are asked for: a play takes a twentieth of a second.
const SHARE: usize = 7;

/// Triples of these, each in the middle of the others' transactions, in both ways.
async fn among(acts: &[Act], wanted: impl Fn([Act; 3]) -> bool) -> Seen {
    let db = TestDb::new().await;
    let (mut quartet, mut seen) = (Quartet::new(&db).await, Seen::default());
    let share = if std::env::var_os("QUEUE_TEST_TRIPLES").is_some() { 1 } else { SHARE };
    let mut turn = usize::try_from(setting("QUEUE_TEST_SEED", 1)).unwrap();
    for a in acts {
        for b in acts {
            for c in acts.iter().filter(|c| wanted([*a, *b, **c])) {
                for script in MIDDLES {
                    turn += 1;
                    if turn.is_multiple_of(share) {
                        seen.play(&mut quartet, [*a, *b, *c], &script).await;
                    }
                }
            }
        }
    }
    drop(quartet);
    db.finish().await;
    println!("{seen:?}");
    seen
}

#[tokio::test]
async fn of_three_that_want_a_leased_job_one_has_it() {
    let seen = among(
        &[Act::Settle, Act::SettlePart, Act::SettleWhole, Act::Forget, Act::Park, Act::GiveBack, Act::Recover, Act::CancelRunning],
        |_| true,
    )
    .await;
    assert!(seen.queues > 10, "two waited for the first: {seen:?}");
}

#[tokio::test]
async fn of_three_that_want_a_ready_job_one_has_it() {
    let wanting = [Act::Claim, Act::ClaimLate, Act::ClaimEach, Act::Cancel, Act::Reschedule, Act::SetPriority, Act::EnqueueUnique];
    let seen = among(&wanting, |_| true).await;
    assert!(seen.waits > 10 && seen.queues > 0, "{seen:?}");
}

#[tokio::test]
async fn of_three_that_want_a_scheduled_job_one_has_it() {
    let seen = among(&[Act::Promote, Act::RunNow, Act::Cancel, Act::Reschedule, Act::SetPriority], |_| true).await;
    assert_eq!(seen.waits, 0, "each passes over what another has: {seen:?}");
}

#[tokio::test]
async fn of_three_that_want_a_dead_letter_or_its_key_one_has_it() {
    let wanting = [Act::Requeue, Act::Discard, Act::PruneDead, Act::Unblock, Act::EnqueueKeyed, Act::Cancel];
    let seen = among(&wanting, |_| true).await;
    assert!(seen.waits > 0 && seen.queues == 0, "operators pass over what others have: {seen:?}");
}

#[tokio::test]
async fn of_three_that_want_a_job_that_is_over_one_has_it() {
    let wanting = [Act::Reopen, Act::ReopenPlain, Act::ReopenTwin, Act::PruneDone, Act::PruneKept, Act::PruneEarly];
    let seen = among(&wanting, |_| true).await;
    assert!(seen.waits > 0 && seen.queues == 0, "operators pass over what others have: {seen:?}");
}

/// A producer, a claim, a verdict, a claim given back, a recovery, a promotion, an operator, one who controls, and housekeeping.
const CLASSES: [Act; 9] = [
    Act::EnqueueUnique,
    Act::Claim,
    Act::Settle,
    Act::GiveBack,
    Act::Recover,
    Act::Promote,
    Act::Requeue,
    Act::SetPriority,
    Act::PruneDone,
];

#[tokio::test]
async fn three_of_different_kinds_lose_and_double_no_job() {
    let seen = among(&CLASSES, |[a, b, c]| a != b && b != c && a != c).await;
    assert!(seen.plays >= 9 * 8 * 7 / SHARE, "{seen:?}");
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().unwrap())
}

/// Their moments in any order, but each begins before it ends; half of the time all begin before any ends.
fn script(rng: &mut Rng) -> Vec<Moment> {
    let mut left: Vec<usize> = [0, 1, 2, 0, 1, 2].into();
    if rng.bool() {
        rng.shuffle(&mut left);
    } else {
        left.chunks_mut(3).for_each(|half| rng.shuffle(half));
    }
    let mut begun = [false; 3];
    let moment = |who: usize| match std::mem::replace(&mut begun[who], true) {
        false => Moment::Begins(who),
        true if rng.u8(..3) == 0 => Moment::RollsBack(who),
        true => Moment::Commits(who),
    };
    left.into_iter().map(moment).collect()
}

/// So many are played in one database, whose tables are never vacuumed enough.
const IN_ONE: u64 = 500;

#[tokio::test]
async fn three_of_all_in_any_order_lose_and_double_no_job() {
    let (count, seed) = (setting("QUEUE_TEST_TRIPLES", 120), setting("QUEUE_TEST_SEED", 1));
    let (mut rng, mut seen, all) = (Rng::with_seed(seed), Seen::default(), acts().collect::<Vec<_>>());
    for first in (0..count).step_by(usize::try_from(IN_ONE).unwrap()) {
        let db = TestDb::new().await;
        let mut quartet = Quartet::new(&db).await;
        for _ in first..count.min(first + IN_ONE) {
            let three = std::array::from_fn(|_| all[rng.usize(..all.len())]);
            let script = script(&mut rng);
            seen.play(&mut quartet, three, &script).await;
        }
        drop(quartet);
        db.finish().await;
        println!("seed {seed}: {seen:?}");
    }
}
