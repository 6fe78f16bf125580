//! Every guard of every statement that writes, and what the statement is without it: a condition, a lock, an order, a limit, an attempt
//! counted. `cargo guards` removes each in turn, and a test must fail (`docs/RELIABILITY.md`).
//!
//! The lists are of this crate and not of the program that runs them, so that a test can hold them against the files.

mod capacity;
mod control;
mod days;
mod keys;
mod operators;
mod producers;
#[cfg(feature = "mutants")]
mod remove;
mod reports;
mod retention;
mod settles;
mod single;
mod workers;

#[cfg(feature = "mutants")]
pub use remove::main;

/// A statement, or the functions of a migration.
#[derive(Debug)]
pub struct Statement {
    /// Its file.
    pub file: &'static str,
    /// The tests that are to notice, by parts of their names: one run of the test binary each, in this order.
    pub tests: &'static [&'static str],
    /// What protects it.
    pub guards: &'static [Guard],
}

/// One guard.
#[derive(Debug)]
pub struct Guard {
    /// What is removed.
    pub what: &'static str,
    /// What stands in the file, once.
    pub from: &'static str,
    /// What stands there without the guard.
    pub to: &'static str,
    /// Why no test can fail without it, if that is so.
    pub redundant: Option<&'static str>,
}

/// All of them.
pub fn statements() -> impl Iterator<Item = &'static Statement> {
    [
        settles::STATEMENTS,
        workers::STATEMENTS,
        operators::STATEMENTS,
        producers::STATEMENTS,
        days::STATEMENTS,
        keys::STATEMENTS,
        reports::STATEMENTS,
        control::STATEMENTS,
        single::STATEMENTS,
        retention::STATEMENTS,
        capacity::STATEMENTS,
    ]
    .into_iter()
    .flatten()
}

const fn guard(what: &'static str, from: &'static str, to: &'static str) -> Guard {
    Guard { what, from, to, redundant: None }
}

/// One without which nothing is wrong, for that reason.
const fn redundant(what: &'static str, from: &'static str, to: &'static str, why: &'static str) -> Guard {
    Guard { what, from, to, redundant: Some(why) }
}
