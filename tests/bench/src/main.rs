//! `cargo bench-queue`: runs the benchmark.

use std::process::ExitCode;

fn main() -> ExitCode {
    queue_bench::main()
}
