//! Runs three statements concurrently: a sample of the triples whose statements compete for the same job, and a sample of all triples.
//! `QUEUE_TEST_TRIPLES=20000` runs all triples of competing statements in every order, and 20000 random triples. `QUEUE_TEST_SEED` selects
//! the samples.

use super::{
    kinds::all_statements,
    statement::Statement,
    three::{Event, MIDDLES, TriplePlayer},
};
use fastrand::Rng;
use tests::TestDb;

/// Totals of the waits in many runs.
#[derive(Debug, Default)]
struct Totals {
    plays: usize,
    /// Number of runs in which a statement waited.
    waits: usize,
    /// Number of runs in which two statements waited at the same time.
    queues: usize,
}

impl Totals {
    async fn play(&mut self, player: &mut TriplePlayer, statements: [Statement; 3], script: &[Event]) {
        let outcome = player.play(statements, script).await;
        self.plays += 1;
        self.waits += usize::from(outcome.waited.contains(&true));
        self.queues += usize::from(outcome.queued);
    }
}

/// Sampling divisor: one in seven runs is executed, because a run takes 50 ms. If `QUEUE_TEST_TRIPLES` is set, every run is executed.
const SHARE: usize = 7;

/// Runs a sample or all of the triples that `is_selected` accepts, with the scripts in `MIDDLES`. A script keeps the transactions of the
/// three statements open at the same time, and then commits or rolls back the first transaction.
async fn play_triples(statements: &[Statement], is_selected: impl Fn([Statement; 3]) -> bool) -> Totals {
    let db = TestDb::new().await;
    let (mut player, mut totals) = (TriplePlayer::new(&db).await, Totals::default());
    let share = if std::env::var_os("QUEUE_TEST_TRIPLES").is_some() { 1 } else { SHARE };
    let mut turn = usize::try_from(setting("QUEUE_TEST_SEED", 1)).unwrap();
    for a in statements {
        for b in statements {
            for c in statements.iter().filter(|c| is_selected([*a, *b, **c])) {
                for script in MIDDLES {
                    turn += 1;
                    if turn.is_multiple_of(share) {
                        totals.play(&mut player, [*a, *b, *c], &script).await;
                    }
                }
            }
        }
    }
    drop(player);
    db.finish().await;
    println!("{totals:?}");
    totals
}

#[tokio::test]
async fn one_of_three_statements_on_a_leased_job_wins() {
    let totals = play_triples(
        &[
            Statement::Settle,
            Statement::SettlePart,
            Statement::SettleWhole,
            Statement::Forget,
            Statement::Park,
            Statement::GiveBack,
            Statement::Recover,
            Statement::CancelRunning,
        ],
        |_| true,
    )
    .await;
    assert!(totals.queues > 10, "two must wait for the first: {totals:?}");
}

#[tokio::test]
async fn one_of_three_statements_on_a_ready_job_wins() {
    let competing = [
        Statement::Claim,
        Statement::ClaimLate,
        Statement::ClaimEach,
        Statement::Cancel,
        Statement::Reschedule,
        Statement::SetPriority,
        Statement::EnqueueUnique,
    ];
    let totals = play_triples(&competing, |_| true).await;
    assert!(totals.waits > 10 && totals.queues > 0, "{totals:?}");
}

#[tokio::test]
async fn one_of_three_statements_on_a_scheduled_job_wins() {
    let totals =
        play_triples(&[Statement::Promote, Statement::RunNow, Statement::Cancel, Statement::Reschedule, Statement::SetPriority], |_| true)
            .await;
    assert_eq!(totals.waits, 0, "each skips locked rows: {totals:?}");
}

#[tokio::test]
async fn one_of_three_statements_on_a_dead_letter_or_its_key_wins() {
    let competing =
        [Statement::Requeue, Statement::Discard, Statement::PruneDead, Statement::Unblock, Statement::EnqueueKeyed, Statement::Cancel];
    let totals = play_triples(&competing, |_| true).await;
    assert!(totals.waits > 0 && totals.queues == 0, "operators skip locked rows: {totals:?}");
}

#[tokio::test]
async fn one_of_three_statements_on_a_finished_job_wins() {
    let competing = [
        Statement::Reopen,
        Statement::ReopenPlain,
        Statement::ReopenTwin,
        Statement::PruneDone,
        Statement::PruneKept,
        Statement::PruneEarly,
    ];
    let totals = play_triples(&competing, |_| true).await;
    assert!(totals.waits > 0 && totals.queues == 0, "operators skip locked rows: {totals:?}");
}

/// Statements of different kinds: an enqueue, a claim, a settle, the release of a lease, a recovery, a promotion, two operator statements
/// and a housekeeping statement.
const CLASSES: [Statement; 9] = [
    Statement::EnqueueUnique,
    Statement::Claim,
    Statement::Settle,
    Statement::GiveBack,
    Statement::Recover,
    Statement::Promote,
    Statement::Requeue,
    Statement::SetPriority,
    Statement::PruneDone,
];

#[tokio::test]
async fn three_statements_of_different_kinds_race_without_lost_or_duplicate_jobs() {
    let totals = play_triples(&CLASSES, |[a, b, c]| a != b && b != c && a != c).await;
    assert!(totals.plays >= 9 * 8 * 7 / SHARE, "{totals:?}");
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().unwrap())
}

/// Returns a random script. Each transaction begins before it ends. With a probability of at least one half, all transactions begin before
/// the first transaction ends.
fn script(rng: &mut Rng) -> Vec<Event> {
    let mut left: Vec<usize> = [0, 1, 2, 0, 1, 2].into();
    if rng.bool() {
        rng.shuffle(&mut left);
    } else {
        left.chunks_mut(3).for_each(|half| rng.shuffle(half));
    }
    let mut begun = [false; 3];
    let event = |who: usize| match std::mem::replace(&mut begun[who], true) {
        false => Event::Begins(who),
        true if rng.u8(..3) == 0 => Event::RollsBack(who),
        true => Event::Commits(who),
    };
    left.into_iter().map(event).collect()
}

/// Maximum number of runs in one database. Autovacuum does not keep up with the runs, so the tables of a database grow.
const PLAYS_PER_DATABASE: u64 = 500;

#[tokio::test]
async fn three_random_statements_race_without_lost_or_duplicate_jobs() {
    let (count, seed) = (setting("QUEUE_TEST_TRIPLES", 120), setting("QUEUE_TEST_SEED", 1));
    let (mut rng, mut totals, all) = (Rng::with_seed(seed), Totals::default(), all_statements().collect::<Vec<_>>());
    for first in (0..count).step_by(usize::try_from(PLAYS_PER_DATABASE).unwrap()) {
        let db = TestDb::new().await;
        let mut player = TriplePlayer::new(&db).await;
        for _ in first..count.min(first + PLAYS_PER_DATABASE) {
            let three = std::array::from_fn(|_| all[rng.usize(..all.len())]);
            let script = script(&mut rng);
            totals.play(&mut player, three, &script).await;
        }
        drop(player);
        db.finish().await;
        println!("seed {seed}: {totals:?}");
    }
}
