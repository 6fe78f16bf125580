//! Executes random operations on the tables, with the product's statements, and in a small in-memory model. After every step the tables
//! must match the model.
//!
//! Runs a few hundred sequences by default, or the number in `PROPTEST_CASES`. A failing sequence is shrunk and saved in
//! `model.regressions`.

mod allow;
mod expect;
mod late;
mod workers;
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

/// Number of sequences, unless `PROPTEST_CASES` is set.
const SEQUENCES: u32 = 400;

/// File with the seeds of failed sequences, which are run first.
const REGRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/it/model.regressions");

#[test]
fn the_tables_match_the_model_after_every_operation() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let db = runtime.block_on(TestDb::new());
    let cases = std::env::var("PROPTEST_CASES").ok().map_or(SEQUENCES, |cases| cases.parse().unwrap());
    // Failures caused by an intentional bug are not saved as regressions.
    let seeded = std::env::var_os("QUEUE_MUTANTS").is_some();
    let config = Config {
        cases,
        failure_persistence: (!seeded).then(|| Box::new(FileFailurePersistence::Direct(REGRESSIONS)) as _),
        max_shrink_iters: if seeded { 0 } else { 2000 },
        ..Config::default()
    };
    // The rows of a sequence are deleted before the next sequence, which reuses the connection. After a failure, the next sequence opens
    // a new connection.
    let idle = Cell::new(None);
    let (sequences, did) = (Cell::new(0), RefCell::new(BTreeMap::new()));
    let outcome = TestRunner::new(config).run(&steps(), |steps| {
        runtime.block_on(async {
            let mut player = Player::new(&db, idle.take()).await;
            for (number, step) in steps.iter().enumerate() {
                let what = player.step(step).await.map_err(|fault| TestCaseError::fail(format!("step {number}, {step:?}: {fault}")))?;
                *did.borrow_mut().entry(what).or_insert(0) += 1;
            }
            player.compare_operator_view().await.map_err(|fault| TestCaseError::fail(format!("at the end: {fault}")))?;
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
    let missing_events: Vec<_> = op::EVENTS.iter().filter(|event| !did.contains_key(*event)).collect();
    assert!(missing_events.is_empty() || cases < SEQUENCES, "these events never occurred: {missing_events:?}");
    runtime.block_on(async move {
        drop(idle);
        db.finish().await;
    });
}
