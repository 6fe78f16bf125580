//! Random operations on the statements themselves, beside a small model in memory: after every step the tables hold what the model says.
//!
//! A few hundred sequences by default; `PROPTEST_CASES=5000` for more. What fails is shrunk, and kept in `model.regressions`.

mod allow;
mod expect;
mod late;
mod obey;
mod op;
mod play;
mod rules;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use tests::TestDb;

use op::steps;
use play::Player;

/// Sequences, unless `PROPTEST_CASES` says how many.
const SEQUENCES: u32 = 400;

/// The seeds of what has failed, tried first.
const REGRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/it/model.regressions");

#[test]
fn whatever_is_done_in_whatever_order_the_tables_hold_what_the_model_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let db = runtime.block_on(TestDb::new());
    let cases = std::env::var("PROPTEST_CASES").ok().map_or(SEQUENCES, |cases| cases.parse().unwrap());
    // Of a bug that was put in, nothing is to be kept or learned.
    let seeded = std::env::var_os("QUEUE_MUTANTS").is_some();
    let config = Config {
        cases,
        failure_persistence: (!seeded).then(|| Box::new(FileFailurePersistence::Direct(REGRESSIONS)) as _),
        max_shrink_iters: if seeded { 0 } else { 2000 },
        ..Config::default()
    };
    // What a sequence leaves is deleted before the next, and its connection kept; after a failure there is a new one.
    let idle = Cell::new(None);
    let (sequences, did) = (Cell::new(0), RefCell::new(BTreeMap::new()));
    let outcome = TestRunner::new(config).run(&steps(), |steps| {
        runtime.block_on(async {
            let mut player = Player::new(&db, idle.take()).await;
            for (number, step) in steps.iter().enumerate() {
                let what = player.step(step).await.map_err(|fault| TestCaseError::fail(format!("step {number}, {step:?}: {fault}")))?;
                *did.borrow_mut().entry(what).or_insert(0) += 1;
            }
            player.look_as_operators_do().await.map_err(|fault| TestCaseError::fail(format!("at the end: {fault}")))?;
            sequences.set(sequences.get() + 1);
            idle.set(Some(player.leave()));
            Ok(())
        })
    });
    let did = did.into_inner();
    println!("{} sequences: {did:?}", sequences.get());
    if let Err(fault) = outcome {
        panic!("{fault}");
    }
    let seldom: Vec<_> = op::EVENTS.iter().filter(|event| !did.contains_key(*event)).collect();
    assert!(seldom.is_empty() || cases < SEQUENCES, "these never happened: {seldom:?}");
    runtime.block_on(async move {
        drop(idle);
        db.finish().await;
    });
}
