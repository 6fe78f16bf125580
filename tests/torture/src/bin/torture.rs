//! `cargo torture`: runs statements concurrently and beside models, in a long form, or in a short one of a few minutes.

use std::process::{Command, ExitCode};

use clap::Parser;

/// Runs writing statements concurrently, and beside in-memory models.
#[derive(Debug, Parser)]
#[command(name = "cargo torture")]
struct Args {
    /// Only tests whose name contains one of these.
    only: Vec<String>,
    /// A seventh of the triples, and short models: about three minutes on two cores, as the CI runs it.
    #[arg(long)]
    quick: bool,
    /// Seed of the sample of triples.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Environment variables of the long form, unless set already: triples drawn from all statements, and sequences of the model.
const LONG: [(&str, &str); 2] = [("QUEUE_TEST_TRIPLES", "5000"), ("PROPTEST_CASES", "5000")];

fn main() -> ExitCode {
    let args = Args::parse();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Builds the whole workspace, so that nothing is compiled again that `cargo test --workspace` has built.
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
