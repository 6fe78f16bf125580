//! Benchmark program, built as a binary of this crate so that a test can run it.

use std::process::ExitCode;

fn main() -> ExitCode {
    queue_bench::main()
}
