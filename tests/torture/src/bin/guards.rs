//! `cargo guards`: removes each guard of each statement in turn, and reports which test fails.

fn main() -> std::process::ExitCode {
    torture::guards::main()
}
