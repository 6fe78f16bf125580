//! `cargo conformance`: runs every public operation against a server, and reports which operations work there.

fn main() -> std::process::ExitCode {
    torture::conformance::main()
}
