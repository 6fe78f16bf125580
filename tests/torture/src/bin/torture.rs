//! `cargo torture`: statements in the middle of each other, and beside models; the long form, or a short one of some minutes.

use std::process::{Command, ExitCode};

use clap::Parser;

/// Plays statements that write in the middle of each other, and beside models in memory.
#[derive(Debug, Parser)]
#[command(name = "cargo torture")]
struct Args {
    /// Only tests whose name contains one of these.
    only: Vec<String>,
    /// A seventh of the triples, and short models: about three minutes on two cores, as the CI runs it.
    #[arg(long)]
    quick: bool,
    /// What triples are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What the long form sets, unless it is set already: triples drawn from all statements, sequences of the model, faults on a way of the protocol.
const LONG: [(&str, &str); 2] = [("QUEUE_TEST_TRIPLES", "5000"), ("PROPTEST_CASES", "5000")];

fn main() -> ExitCode {
    let args = Args::parse();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Of the whole workspace, so that nothing is built anew that `cargo test --workspace` has built.
    cargo.args(["test", "--quiet", "--workspace", "--test", "attacks", "--"]).args(&args.only);
    cargo.env("QUEUE_TEST_SEED", args.seed.to_string());
    for (name, value) in LONG.iter().filter(|(name, _)| !args.quick && std::env::var_os(name).is_none()) {
        cargo.env(name, value);
    }
    match cargo.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: cargo does not start: {error}");
            ExitCode::from(2)
        }
    }
}
