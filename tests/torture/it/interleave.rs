//! Every two statements that write, on the same jobs: one before the other, or in the middle of its transaction, which then commits or does not.
//! And three of them (`triples`), and a zombie between two others (`zombie`).
//! Whether one waits is read off the server's locks, so nothing here hangs on time.

mod act;
mod pair;
mod fixture;
mod tally;
mod three;
mod triples;
mod zombie;

use act::{Act, acts};
use pair::{Form, Trio};
use tests::TestDb;

/// Plays `first` against every statement, in every form; each leaves the invariant, and no verdict is taken twice.
async fn against_all(first: &'static [Act]) {
    let db = TestDb::new().await;
    let mut trio = Trio::new(&db).await;
    for a in first {
        for b in acts() {
            for form in Form::ALL {
                let outcome = trio.play(*a, b, form).await;
                println!("{a:?} {form:?} {b:?}: {outcome:?}");
            }
        }
    }
    drop(trio);
    db.finish().await;
}

#[tokio::test]
async fn whatever_meets_a_statement_of_a_producer_no_job_is_lost_or_doubled() {
    against_all(act::PRODUCERS).await;
}

#[tokio::test]
async fn whatever_meets_a_claim_or_its_end_no_job_is_lost_or_doubled() {
    against_all(act::WORKERS).await;
}

#[tokio::test]
async fn whatever_meets_a_transactional_job_no_job_is_lost_or_doubled() {
    against_all(act::TRANSACTIONS).await;
}

#[tokio::test]
async fn whatever_meets_a_recovery_or_a_promotion_no_job_is_lost_or_doubled() {
    against_all(act::RECOVERIES).await;
}

#[tokio::test]
async fn whatever_meets_an_expiry_no_job_is_lost_or_doubled() {
    against_all(act::EXPIRIES).await;
}

#[tokio::test]
async fn whatever_meets_an_operator_no_job_is_lost_or_doubled() {
    against_all(act::OPERATORS).await;
}

#[tokio::test]
async fn whatever_meets_housekeeping_no_job_is_lost_or_doubled() {
    against_all(act::HOUSEKEEPING).await;
}

#[tokio::test]
async fn whatever_meets_the_end_of_a_lane_no_job_is_left_without_one() {
    against_all(act::LANES).await;
}

#[tokio::test]
async fn whatever_meets_what_is_said_of_limits_no_job_is_lost_or_doubled() {
    against_all(act::LIMITS).await;
}

#[tokio::test]
async fn whatever_meets_a_heartbeat_no_job_is_lost_or_doubled() {
    against_all(act::HEARTS).await;
}

#[tokio::test]
async fn whatever_meets_control_of_waiting_and_running_jobs_no_job_is_lost_or_doubled() {
    against_all(act::CONTROLS).await;
}

#[tokio::test]
async fn whatever_meets_the_retention_of_types_no_job_is_lost_or_doubled() {
    against_all(act::RETENTIONS).await;
}

/// Many at once of what `enqueue_with` is one of; `keys::crowd` plays them against everything.
const MANY: [&str; 2] = ["insert_with", "enqueue_each"];

/// Write no entry of a job: who waits for jobs, and what jobs and their types say of themselves; `guards::reports` and `type_options` attack these.
/// And what came of ticks, which `cron::single` attacks, and what a worker says of pauses, which `paused::` attacks.
const BESIDE: [&str; 11] = [
    "announce_waiter",
    "leave_waiter",
    "prune_waiters",
    "checkpoint",
    "note",
    "clear_progress",
    "forget_keys",
    "publish_types",
    "locked_leases",
    "prune_fires",
    "vouch",
];

#[test]
fn every_statement_that_writes_is_played() {
    let played: Vec<&str> = acts().flat_map(Act::files).copied().collect();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for folder in ["queue-core/sql", "queue-worker/sql"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let code: String = text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
            let writes = [
                "insert into",
                "delete from",
                "update queue",
                "for update",
                "queue.insert_job(",
                "queue.enqueue_with(",
                "queue.fire_ticks(",
                "queue.claim_limited(",
                "queue.unblock(",
                "_all(",
                "queue.meet_lane(",
                "queue.meet_lanes(",
                "queue.worker_drop_day(",
            ];
            let name = path.file_stem().unwrap().to_str().unwrap();
            if writes.iter().any(|word| code.contains(word)) && !MANY.contains(&name) && !BESIDE.contains(&name) {
                assert!(played.contains(&name), "{name}.sql writes, and is not played against the others");
            }
        }
    }
}

#[tokio::test]
async fn a_second_statement_for_the_same_job_waits_for_the_first_and_then_does_nothing() {
    let pairs = [
        (Act::Settle, Act::Settle),
        (Act::Settle, Act::SettleWhole),
        (Act::SettleWhole, Act::Settle),
        (Act::SettleWhole, Act::SettleWhole),
        (Act::Settle, Act::Park),
        (Act::SettleWhole, Act::Park),
        (Act::Park, Act::Park),
        (Act::GiveBack, Act::Settle),
        (Act::Settle, Act::GiveBack),
        (Act::GiveBack, Act::SettleWhole),
        (Act::Recover, Act::Settle),
        (Act::Recover, Act::SettleWhole),
        (Act::FinishUnlocked, Act::FinishUnlocked),
        (Act::FinishOne, Act::FinishUnlocked),
        (Act::Claim, Act::FinishUnlocked),
        (Act::Cancel, Act::FinishUnlocked),
    ];
    let db = TestDb::new().await;
    let mut trio = Trio::new(&db).await;
    for (a, b) in pairs {
        let committed = trio.play(a, b, Form::DuringThenCommit).await;
        assert!(committed.waited && committed.first > 0 && committed.second == 0, "{a:?}, {b:?}: {committed:?}");
        let undone = trio.play(a, b, Form::DuringThenRollback).await;
        assert!(undone.waited && undone.second > 0, "{a:?} rolled back, {b:?}: {undone:?}");
    }
    drop(trio);
    db.finish().await;
}

#[tokio::test]
async fn claims_promotions_recoveries_and_operators_pass_over_what_another_has_in_hand() {
    let pairs = [
        (Act::Claim, Act::Claim),
        (Act::Cancel, Act::Claim),
        (Act::Promote, Act::Promote),
        (Act::Cancel, Act::Promote),
        (Act::Recover, Act::Recover),
        (Act::LockSilent, Act::Recover),
        (Act::Settle, Act::Recover),
        (Act::GiveBack, Act::Recover),
        (Act::Park, Act::Recover),
        (Act::PruneDone, Act::PruneDone),
        (Act::Claim, Act::TakeOne),
        (Act::Cancel, Act::TakeOne),
        (Act::Cancel, Act::Cancel),
        (Act::Reschedule, Act::SetPriority),
        (Act::SetPriority, Act::Claim),
        (Act::RunNow, Act::Promote),
        (Act::PruneDead, Act::PruneDead),
        (Act::Requeue, Act::Requeue),
        (Act::Requeue, Act::Discard),
        (Act::Discard, Act::Requeue),
        (Act::Discard, Act::Discard),
        (Act::Reopen, Act::Reopen),
        (Act::ReopenPlain, Act::ReopenPlain),
        (Act::FireTick, Act::FireTick),
    ];
    let db = TestDb::new().await;
    let mut trio = Trio::new(&db).await;
    for (a, b) in pairs {
        for form in [Form::DuringThenCommit, Form::DuringThenRollback] {
            let outcome = trio.play(a, b, form).await;
            assert!(!outcome.waited && outcome.second == 0, "{a:?} {form:?} {b:?}: {outcome:?}");
        }
    }
    drop(trio);
    db.finish().await;
}

#[tokio::test]
async fn a_transactional_job_takes_one_entry_from_all_others_and_no_more() {
    let db = TestDb::new().await;
    let mut trio = Trio::new(&db).await;
    for taken in [Act::TakeOne, Act::FinishOne] {
        for (other, left) in [(Act::Claim, 2), (Act::TakeOne, 1), (Act::FinishOne, 1)] {
            for form in [Form::DuringThenCommit, Form::DuringThenRollback] {
                let outcome = trio.play(taken, other, form).await;
                assert!(!outcome.waited && outcome.second == left, "{taken:?} {form:?} {other:?}: {outcome:?}");
            }
        }
    }
    drop(trio);
    db.finish().await;
}

#[tokio::test]
async fn of_two_jobs_in_one_row_of_history_the_second_to_be_reopened_at_once_is_left_completed() {
    let db = TestDb::new().await;
    let mut trio = Trio::new(&db).await;
    for (a, b) in [(Act::ReopenPlain, Act::ReopenTwin), (Act::ReopenTwin, Act::ReopenPlain)] {
        let after = trio.play(a, b, Form::After).await;
        assert_eq!((after.first, after.second), (1, 1));
        for (form, completed) in [(Form::DuringThenCommit, 2), (Form::DuringThenRollback, 3)] {
            let at_once = trio.play(a, b, form).await;
            assert!(!at_once.waited && at_once.second == 0, "the operator is to ask again: {at_once:?}");
            let left = db.count("select count(*) from queue.jobs where state = 'completed'").await;
            assert_eq!(left, completed, "what was not reopened, and one with an output");
        }
    }
    drop(trio);
    db.finish().await;
}
