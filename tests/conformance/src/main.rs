//! `queue-conformance`: runs every public operation against a server, and reports which operations work there.

use std::process::ExitCode;

use clap::Parser;
use queue_conformance::Options;

/// Run every public operation against a server, and report which operations work there. Without `--database-url`, the URLs are those of
/// the variables `DATABASE_URL`, `QUEUE_DIRECT_URL` and `QUEUE_READ_URL`
#[derive(Parser)]
#[command(name = "queue-conformance", version)]
struct Args {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Args { mut options } = Args::parse();
    // If a database URL is given, all variables are ignored, because they could contain the direct URL of another database.
    if options.database_url.is_none() {
        let variables = ["DATABASE_URL", "QUEUE_DIRECT_URL", "QUEUE_READ_URL"];
        [options.database_url, options.direct_url, options.read_url] =
            variables.map(|name| std::env::var(name).ok().filter(|url| !url.is_empty()));
    }
    let setup = if options.database_url.is_some() { "given" } else { "embedded" };
    queue_conformance::main(options.verbose, queue_conformance::run(setup, &options))
}
