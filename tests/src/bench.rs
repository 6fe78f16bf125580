//! The bench as a program, for its test.

use std::process::ExitCode;

fn main() -> ExitCode {
    queue_bench::main()
}
