//! `cargo chaos`: injects faults into workers, server and network, and checks the outcome of every job.

fn main() -> std::process::ExitCode {
    torture::chaos::main()
}
