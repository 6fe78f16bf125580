//! `cargo torture`: runs SQL statements concurrently, and compares their effects with in-memory models. With `--quick`, it tests fewer
//! samples and takes a few minutes.

use std::process::{Command, ExitCode};

use clap::Parser;

/// Run write statements concurrently, and compare them with in-memory models
#[derive(Debug, Parser)]
#[command(name = "cargo torture")]
struct Args {
    /// Run only tests whose name contains one of the given texts
    only: Vec<String>,
    /// Run a seventh of the statement triples, and fewer model sequences. This takes about three minutes on two cores, and CI uses it
    #[arg(long)]
    quick: bool,
    /// Seed that selects the sample of statement triples
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Environment variables that a run without `--quick` sets unless they are already set: the number of triples drawn from all statements,
/// and the number of model sequences.
const LONG: [(&str, &str); 2] = [("QUEUE_TEST_TRIPLES", "5000"), ("PROPTEST_CASES", "5000")];

fn main() -> ExitCode {
    let args = Args::parse();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Builds the whole workspace, so that cargo reuses what `cargo test --workspace` has built.
    cargo.args(["test", "--quiet", "--workspace", "--test", "attacks", "--"]).args(&args.only);
    cargo.env("QUEUE_TEST_SEED", args.seed.to_string());
    for (name, value) in LONG.iter().filter(|(name, _)| !args.quick && std::env::var_os(name).is_none()) {
        cargo.env(name, value);
    }
    match cargo.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: cannot start cargo: {error}");
            ExitCode::from(2)
        }
    }
}
