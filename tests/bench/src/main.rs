//! `cargo bench-queue`.

use std::process::ExitCode;

fn main() -> ExitCode {
    queue_bench::main()
}
