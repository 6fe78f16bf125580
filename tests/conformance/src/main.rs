//! `queue-conformance`: runs every public operation against a server, and reports which operations work there.

use std::process::ExitCode;

use clap::Parser;
use queue_conformance::Options;

/// Run every public operation against a server, and report which operations work there
#[derive(Parser)]
#[command(name = "queue-conformance", version)]
struct Args {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Args { options } = Args::parse();
    let setup = if options.database_url.is_some() { "given" } else { "embedded" };
    queue_conformance::main(options.verbose, queue_conformance::run(setup, &options))
}
