//! Runs every pair of write statements on the same jobs. The second statement starts after the first transaction has ended, or while the
//! first transaction is open. An open first transaction is then committed or rolled back. The module `triples` runs three statements
//! concurrently, and `zombie` runs a zombie's writes between the statements of two other workers. Waits are read from the server's lock
//! tables, so no test depends on timing.

mod statement;
mod side_statement;
mod maps;
mod pair;
mod fixture;
mod kinds;
mod tally;
mod three;
mod triples;
mod zombie;

use kinds::all_statements;
use pair::{Form, PairPlayer};
use side_statement::SideStatement;
use statement::Statement;
use tests::TestDb;

/// Runs each statement of `first` with every statement, in each applicable `Form`. After each run, the invariants must hold, for example
/// that every job has exactly one entry. At most one verdict on a lease may take effect.
async fn against_all(first: &'static [Statement]) {
    let db = TestDb::new().await;
    let mut player = PairPlayer::new(&db).await;
    for a in first {
        for b in all_statements() {
            // Most pairs of a side statement and another statement touch no common row, so these pairs are run in one form only.
            let apart = matches!(a, Statement::Side(_)) != matches!(b, Statement::Side(_));
            for form in if apart { &Form::ALL[1..2] } else { &Form::ALL[..] } {
                let outcome = player.play(*a, b, *form).await;
                println!("{a:?} {form:?} {b:?}: {outcome:?}");
            }
        }
    }
    drop(player);
    db.finish().await;
}

#[tokio::test]
async fn producer_statements_race_without_lost_or_duplicate_jobs() {
    against_all(kinds::PRODUCERS).await;
}

#[tokio::test]
async fn verdicts_and_claims_race_without_lost_or_duplicate_jobs() {
    against_all(kinds::WORKERS).await;
}

#[tokio::test]
async fn recoveries_and_promotions_race_without_lost_or_duplicate_jobs() {
    against_all(kinds::RECOVERIES).await;
}

#[tokio::test]
async fn expiries_race_without_lost_or_duplicate_jobs() {
    against_all(kinds::EXPIRIES).await;
}

#[tokio::test]
async fn operator_statements_race_without_lost_or_duplicate_jobs() {
    against_all(kinds::OPERATORS).await;
}

#[tokio::test]
async fn housekeeping_races_without_lost_or_duplicate_jobs() {
    against_all(kinds::HOUSEKEEPING).await;
}

#[tokio::test]
async fn lane_removal_leaves_no_job_without_a_lane() {
    against_all(kinds::LANES).await;
}

#[tokio::test]
async fn limit_changes_race_without_lost_or_duplicate_jobs() {
    against_all(kinds::LIMITS).await;
}

#[tokio::test]
async fn heartbeats_race_without_lost_or_duplicate_jobs() {
    against_all(kinds::HEARTBEATS).await;
}

#[tokio::test]
async fn job_control_races_without_lost_or_duplicate_jobs() {
    against_all(kinds::CONTROLS).await;
}

#[tokio::test]
async fn type_retention_races_without_lost_or_duplicate_jobs() {
    against_all(kinds::RETENTIONS).await;
}

#[tokio::test]
async fn schedule_statements_are_serializable() {
    against_all(side_statement::SCHEDULES).await;
}

#[tokio::test]
async fn workers_acknowledge_only_pauses_they_have_read() {
    against_all(side_statement::PAUSES).await;
}

#[tokio::test]
async fn reports_race_without_lost_or_duplicate_jobs() {
    against_all(side_statement::REPORTS).await;
}

#[tokio::test]
async fn map_statements_race_and_each_part_counts_once() {
    against_all(side_statement::MAPS).await;
}

/// Bulk variants of `enqueue_with`, which are not run here. The test `keys::crowd` enqueues batches while workers run.
const MANY: [&str; 2] = ["insert_with", "enqueue_each"];

#[test]
fn every_writing_statement_is_played() {
    let played: Vec<&str> = all_statements().flat_map(Statement::files).copied().collect();
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
                "queue.claim_fair(",
                "queue.unblock(",
                "_all(",
                "queue.ensure_lane(",
                "queue.ensure_lanes(",
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
            // A doctor query returns its fixes as text, so write statements in this text are not executed.
            let only_reads = MANY.contains(&name) || name.starts_with("doctor_");
            if writes.iter().any(|word| code.contains(word)) && !only_reads {
                assert!(played.contains(&name), "{name}.sql writes, but is not played against the others");
            }
        }
    }
}

#[tokio::test]
async fn a_second_statement_for_the_same_job_waits_for_the_first_and_then_does_nothing() {
    let pairs = [
        (Statement::Settle, Statement::Settle),
        (Statement::Settle, Statement::SettleWhole),
        (Statement::SettleWhole, Statement::Settle),
        (Statement::SettleWhole, Statement::SettleWhole),
        (Statement::Settle, Statement::Park),
        (Statement::SettleWhole, Statement::Park),
        (Statement::Park, Statement::Park),
        (Statement::GiveBack, Statement::Settle),
        (Statement::Settle, Statement::GiveBack),
        (Statement::GiveBack, Statement::SettleWhole),
        (Statement::Recover, Statement::Settle),
        (Statement::Recover, Statement::SettleWhole),
        (Statement::Settle, Statement::SettleBatch),
        (Statement::SettleBatch, Statement::Settle),
        (Statement::SettleBatch, Statement::SettleBatch),
        (Statement::Recover, Statement::SettleBatch),
        (Statement::Side(SideStatement::Unschedule), Statement::Side(SideStatement::Unschedule)),
        (Statement::Side(SideStatement::Unschedule), Statement::Side(SideStatement::SkipSchedule)),
        (Statement::Side(SideStatement::Resume), Statement::Side(SideStatement::Resume)),
        (Statement::Side(SideStatement::Vouch), Statement::Side(SideStatement::Vouch)),
    ];
    let db = TestDb::new().await;
    let mut player = PairPlayer::new(&db).await;
    for (a, b) in pairs {
        let committed = player.play(a, b, Form::DuringThenCommit).await;
        assert!(committed.waited && committed.first > 0 && committed.second == 0, "{a:?}, {b:?}: {committed:?}");
        let undone = player.play(a, b, Form::DuringThenRollback).await;
        assert!(undone.waited && undone.second > 0, "{a:?} rolled back, {b:?}: {undone:?}");
    }
    drop(player);
    db.finish().await;
}

#[tokio::test]
async fn claims_promotions_recoveries_and_operators_skip_locked_rows() {
    let pairs = [
        (Statement::Claim, Statement::Claim),
        (Statement::Claim, Statement::ClaimLate),
        (Statement::ClaimLate, Statement::Claim),
        (Statement::ClaimLate, Statement::ClaimLate),
        (Statement::Cancel, Statement::ClaimLate),
        (Statement::ClaimFair, Statement::ClaimFair),
        (Statement::MoveToFairLanes, Statement::MoveToFairLanes),
        (Statement::MoveToFairLanes, Statement::Claim),
        (Statement::Claim, Statement::MoveToFairLanes),
        (Statement::Cancel, Statement::ClaimFair),
        (Statement::Cancel, Statement::MoveToFairLanes),
        (Statement::Cancel, Statement::Claim),
        (Statement::Promote, Statement::Promote),
        (Statement::Cancel, Statement::Promote),
        (Statement::Recover, Statement::Recover),
        (Statement::LockSilent, Statement::Recover),
        (Statement::Settle, Statement::Recover),
        (Statement::GiveBack, Statement::Recover),
        (Statement::Park, Statement::Recover),
        (Statement::PruneDone, Statement::PruneDone),
        (Statement::Claim, Statement::ClaimEach),
        (Statement::ClaimEach, Statement::ClaimEach),
        (Statement::Cancel, Statement::Cancel),
        (Statement::Reschedule, Statement::SetPriority),
        (Statement::SetPriority, Statement::Claim),
        (Statement::RunNow, Statement::Promote),
        (Statement::PruneDead, Statement::PruneDead),
        (Statement::Requeue, Statement::Requeue),
        (Statement::Requeue, Statement::Discard),
        (Statement::Discard, Statement::Requeue),
        (Statement::Discard, Statement::Discard),
        (Statement::Reopen, Statement::Reopen),
        (Statement::ReopenPlain, Statement::ReopenPlain),
        (Statement::FireTick, Statement::FireTick),
        (Statement::Side(SideStatement::PauseSchedule), Statement::FireTick),
        (Statement::Side(SideStatement::SkipSchedule), Statement::FireTick),
        (Statement::Side(SideStatement::PutSchedule), Statement::FireTick),
        (Statement::Side(SideStatement::Unschedule), Statement::FireTick),
        (Statement::Side(SideStatement::PruneFires), Statement::Side(SideStatement::PruneFires)),
        (Statement::Side(SideStatement::ClearProgress), Statement::Side(SideStatement::ClearProgress)),
        (Statement::Side(SideStatement::PruneWaiters), Statement::Side(SideStatement::PruneWaiters)),
    ];
    let db = TestDb::new().await;
    let mut player = PairPlayer::new(&db).await;
    for (a, b) in pairs {
        for form in [Form::DuringThenCommit, Form::DuringThenRollback] {
            let outcome = player.play(a, b, form).await;
            assert!(!outcome.waited && outcome.second == 0, "{a:?} {form:?} {b:?}: {outcome:?}");
        }
    }
    drop(player);
    db.finish().await;
}

#[tokio::test]
async fn every_side_statement_affects_rows() {
    let db = TestDb::new().await;
    let mut player = PairPlayer::new(&db).await;
    for statement in
        [side_statement::SCHEDULES, side_statement::PAUSES, side_statement::REPORTS, side_statement::MAPS].into_iter().flatten()
    {
        let (other, form) = match statement {
            Statement::Side(SideStatement::LockedRows) => (Statement::CancelRunning, Form::DuringThenCommit),
            Statement::Side(SideStatement::RollUp) => (Statement::Side(SideStatement::Tally), Form::After),
            _ => (Statement::Enqueue, Form::After),
        };
        let outcome = player.play(other, *statement, form).await;
        let expected = match statement {
            // The chunk has two parts.
            Statement::Side(SideStatement::AddChunk) => 2,
            // The statement frees a key only if the key's head job does not exist. This happens only if rows are deleted outside of the
            // protocol, which `keys::edges` covers.
            Statement::Side(SideStatement::FreeKeys) => 0,
            _ => 1,
        };
        assert!(!outcome.waited && outcome.second == expected, "{statement:?}: {outcome:?}");
    }
    drop(player);
    db.finish().await;
}

#[tokio::test]
async fn an_uncommitted_pause_is_not_acknowledged() {
    let db = TestDb::new().await;
    let mut player = PairPlayer::new(&db).await;
    let awaits = "select count(*) from queue.pause_awaits('default')";
    for (form, awaited) in [(Form::After, 0), (Form::DuringThenCommit, 1), (Form::DuringThenRollback, 0)] {
        let outcome = player.play(Statement::Side(SideStatement::Pause), Statement::Side(SideStatement::Vouch), form).await;
        assert!(!outcome.waited && outcome.second == 1, "{form:?}: {outcome:?}");
        assert_eq!(db.count(awaits).await, awaited, "{form:?}");
    }
    let outcome = player.play(Statement::Side(SideStatement::Pause), Statement::Side(SideStatement::Pause), Form::DuringThenCommit).await;
    assert!(outcome.waited, "numbers become visible in their order: {outcome:?}");
    let outcome =
        player.play(Statement::Side(SideStatement::Unschedule), Statement::Side(SideStatement::PutSchedule), Form::DuringThenCommit).await;
    assert!(
        outcome.waited && db.count("select count(*) from queue.schedule where name = 'due'").await == 1,
        "the schedule is created again: {outcome:?}"
    );
    drop(player);
    db.finish().await;
}

#[tokio::test]
async fn of_two_concurrent_reopens_in_one_history_row_the_second_has_no_effect() {
    let db = TestDb::new().await;
    let mut player = PairPlayer::new(&db).await;
    for (a, b) in [(Statement::ReopenPlain, Statement::ReopenTwin), (Statement::ReopenTwin, Statement::ReopenPlain)] {
        let after = player.play(a, b, Form::After).await;
        assert_eq!((after.first, after.second), (1, 1));
        for (form, completed) in [(Form::DuringThenCommit, 2), (Form::DuringThenRollback, 3)] {
            let at_once = player.play(a, b, form).await;
            assert!(!at_once.waited && at_once.second == 0, "the operator must retry: {at_once:?}");
            let left = db.count("select count(*) from queue.jobs where state = 'completed'").await;
            assert_eq!(left, completed, "the jobs not reopened, and one with an output");
        }
    }
    drop(player);
    db.finish().await;
}
