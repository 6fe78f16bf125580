//! The benchmark as a binary, for its test.

use std::process::ExitCode;

fn main() -> ExitCode {
    queue_bench::main()
}
