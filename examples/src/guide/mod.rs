//! Verbatim code blocks of `docs`, one module for each page, so that every block is compiled. `tests/it/house/blocks.rs` compares the
//! blocks with the pages. `#[rustfmt::skip]` keeps a block's layout. Blocks that are part of an example program are not copied here.

#![allow(
    dead_code,
    unused,
    unnameable_test_items,
    unreachable_pub,
    clippy::pedantic,
    clippy::let_and_return,
    clippy::needless_return,
    reason = "a block shows one feature, and its context has only what the block needs to compile"
)]

mod batches;
mod children;
mod coming_from;
mod cron;
mod dashboard;
mod deploy;
mod doctor;
mod durable;
mod errors;
mod evolution;
mod fairness;
mod flows;
mod limits;
mod maps;
mod metrics;
mod operations;
mod readme;
mod sealed;
mod stores;
mod testing;
mod traces;
mod why;
