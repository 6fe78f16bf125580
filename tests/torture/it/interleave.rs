//! Every two statements that write, on the same jobs: one before the other, or in the middle of its transaction, which then commits or does not.
//! And three of them (`triples`), and a zombie between two others (`zombie`).
//! Whether one waits is read off the server's locks, so nothing here hangs on time.

mod act;
mod beside;
mod maps;
mod pair;
mod fixture;
mod kinds;
mod tally;
mod three;
mod triples;
mod zombie;

use act::Act;
use beside::Beside;
use kinds::acts;
use pair::{Form, Trio};
use tests::TestDb;

/// Plays `first` against every statement, in every form; each leaves the invariant, and no verdict is taken twice.
async fn against_all(first: &'static [Act]) {
    let db = TestDb::new().await;
    let mut trio = Trio::new(&db).await;
    for a in first {
        for b in acts() {
            // What has no row in common is played in one form.
            let apart = matches!(a, Act::Beside(_)) != matches!(b, Act::Beside(_));
            for form in if apart { &Form::ALL[1..2] } else { &Form::ALL[..] } {
                let outcome = trio.play(*a, b, *form).await;
                println!("{a:?} {form:?} {b:?}: {outcome:?}");
            }
        }
    }
    drop(trio);
    db.finish().await;
}

#[tokio::test]
async fn whatever_meets_a_statement_of_a_producer_no_job_is_lost_or_doubled() {
    against_all(kinds::PRODUCERS).await;
}

#[tokio::test]
async fn whatever_meets_a_claim_or_its_end_no_job_is_lost_or_doubled() {
    against_all(kinds::WORKERS).await;
}

#[tokio::test]
async fn whatever_meets_a_recovery_or_a_promotion_no_job_is_lost_or_doubled() {
    against_all(kinds::RECOVERIES).await;
}

#[tokio::test]
async fn whatever_meets_an_expiry_no_job_is_lost_or_doubled() {
    against_all(kinds::EXPIRIES).await;
}

#[tokio::test]
async fn whatever_meets_an_operator_no_job_is_lost_or_doubled() {
    against_all(kinds::OPERATORS).await;
}

#[tokio::test]
async fn whatever_meets_housekeeping_no_job_is_lost_or_doubled() {
    against_all(kinds::HOUSEKEEPING).await;
}

#[tokio::test]
async fn whatever_meets_the_end_of_a_lane_no_job_is_left_without_one() {
    against_all(kinds::LANES).await;
}

#[tokio::test]
async fn whatever_meets_what_is_said_of_limits_no_job_is_lost_or_doubled() {
    against_all(kinds::LIMITS).await;
}

#[tokio::test]
async fn whatever_meets_a_heartbeat_no_job_is_lost_or_doubled() {
    against_all(kinds::HEARTS).await;
}

#[tokio::test]
async fn whatever_meets_control_of_waiting_and_running_jobs_no_job_is_lost_or_doubled() {
    against_all(kinds::CONTROLS).await;
}

#[tokio::test]
async fn whatever_meets_the_retention_of_types_no_job_is_lost_or_doubled() {
    against_all(kinds::RETENTIONS).await;
}

#[tokio::test]
async fn whatever_meets_an_act_on_schedules_each_is_as_after_one_order_of_both() {
    against_all(beside::SCHEDULES).await;
}

#[tokio::test]
async fn whatever_meets_a_pause_workers_vouch_for_what_they_have_seen() {
    against_all(beside::PAUSES).await;
}

#[tokio::test]
async fn whatever_meets_a_report_no_job_is_lost_or_doubled() {
    against_all(beside::REPORTS).await;
}

#[tokio::test]
async fn whatever_meets_a_map_each_part_counts_once() {
    against_all(beside::MAPS).await;
}

/// Many at once of what `enqueue_with` is one of; `keys::crowd` plays them against everything.
const MANY: [&str; 2] = ["insert_with", "enqueue_each"];

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
                "queue.claim_keyed(",
                "queue.claim_lines(",
                "queue.unblock(",
                "_all(",
                "queue.meet_lane(",
                "queue.meet_lanes(",
                "queue.worker_drop_day(",
                "schedule(",
                "schedules(",
                "_waiter(",
                "queue.pause(",
                "queue.resume(",
                "queue.forget_keys(",
                "queue.add_chunk(",
                "queue.close_gather(",
                "queue.count_gathers(",
                "queue.prune_gathers(",
            ];
            let name = path.file_stem().unwrap().to_str().unwrap();
            // What doctor proposes is text.
            let only_reads = MANY.contains(&name) || name.starts_with("doctor_");
            if writes.iter().any(|word| code.contains(word)) && !only_reads {
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
        (Act::Settle, Act::SettleBatch),
        (Act::SettleBatch, Act::Settle),
        (Act::SettleBatch, Act::SettleBatch),
        (Act::Recover, Act::SettleBatch),
        (Act::Beside(Beside::Unschedule), Act::Beside(Beside::Unschedule)),
        (Act::Beside(Beside::Unschedule), Act::Beside(Beside::SkipSchedule)),
        (Act::Beside(Beside::Resume), Act::Beside(Beside::Resume)),
        (Act::Beside(Beside::Vouch), Act::Beside(Beside::Vouch)),
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
        (Act::Claim, Act::ClaimLate),
        (Act::ClaimLate, Act::Claim),
        (Act::ClaimLate, Act::ClaimLate),
        (Act::Cancel, Act::ClaimLate),
        (Act::ClaimLines, Act::ClaimLines),
        (Act::LineUp, Act::LineUp),
        (Act::LineUp, Act::Claim),
        (Act::Claim, Act::LineUp),
        (Act::Cancel, Act::ClaimLines),
        (Act::Cancel, Act::LineUp),
        (Act::Cancel, Act::Claim),
        (Act::Promote, Act::Promote),
        (Act::Cancel, Act::Promote),
        (Act::Recover, Act::Recover),
        (Act::LockSilent, Act::Recover),
        (Act::Settle, Act::Recover),
        (Act::GiveBack, Act::Recover),
        (Act::Park, Act::Recover),
        (Act::PruneDone, Act::PruneDone),
        (Act::Claim, Act::ClaimEach),
        (Act::ClaimEach, Act::ClaimEach),
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
        (Act::Beside(Beside::PauseSchedule), Act::FireTick),
        (Act::Beside(Beside::SkipSchedule), Act::FireTick),
        (Act::Beside(Beside::PutSchedule), Act::FireTick),
        (Act::Beside(Beside::Unschedule), Act::FireTick),
        (Act::Beside(Beside::PruneFires), Act::Beside(Beside::PruneFires)),
        (Act::Beside(Beside::ClearProgress), Act::Beside(Beside::ClearProgress)),
        (Act::Beside(Beside::PruneWaiters), Act::Beside(Beside::PruneWaiters)),
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
async fn whatever_is_done_beside_jobs_has_something_to_do() {
    let db = TestDb::new().await;
    let mut trio = Trio::new(&db).await;
    for act in [beside::SCHEDULES, beside::PAUSES, beside::REPORTS, beside::MAPS].into_iter().flatten() {
        let (other, form) = match act {
            Act::Beside(Beside::LockedRows) => (Act::CancelRunning, Form::DuringThenCommit),
            Act::Beside(Beside::RollUp) => (Act::Beside(Beside::Tally), Form::After),
            _ => (Act::Enqueue, Form::After),
        };
        let outcome = trio.play(other, *act, form).await;
        let expected = match act {
            // Two parts of a chunk.
            Act::Beside(Beside::AddChunk) => 2,
            // No head is gone unless somebody deletes it by hand: keys::edges has those.
            Act::Beside(Beside::FreeKeys) => 0,
            _ => 1,
        };
        assert!(!outcome.waited && outcome.second == expected, "{act:?}: {outcome:?}");
    }
    drop(trio);
    db.finish().await;
}

#[tokio::test]
async fn of_a_pause_that_is_not_committed_nobody_says_that_it_is_heeded() {
    let db = TestDb::new().await;
    let mut trio = Trio::new(&db).await;
    let awaits = "select count(*) from queue.pause_awaits('default')";
    for (form, awaited) in [(Form::After, 0), (Form::DuringThenCommit, 1), (Form::DuringThenRollback, 0)] {
        let outcome = trio.play(Act::Beside(Beside::Pause), Act::Beside(Beside::Vouch), form).await;
        assert!(!outcome.waited && outcome.second == 1, "{form:?}: {outcome:?}");
        assert_eq!(db.count(awaits).await, awaited, "{form:?}");
    }
    let outcome = trio.play(Act::Beside(Beside::Pause), Act::Beside(Beside::Pause), Form::DuringThenCommit).await;
    assert!(outcome.waited, "numbers become visible in their order: {outcome:?}");
    let outcome = trio.play(Act::Beside(Beside::Unschedule), Act::Beside(Beside::PutSchedule), Form::DuringThenCommit).await;
    assert!(
        outcome.waited && db.count("select count(*) from queue.schedule where name = 'due'").await == 1,
        "it is made anew: {outcome:?}"
    );
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
