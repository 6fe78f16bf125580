//! The benchmark as a binary of this crate, so that its test can run it.

use std::process::ExitCode;

fn main() -> ExitCode {
    queue_bench::main()
}
