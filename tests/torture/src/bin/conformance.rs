//! `cargo conformance`: plays every public operation on a server, and says what holds there.

fn main() -> std::process::ExitCode {
    torture::conformance::main()
}
