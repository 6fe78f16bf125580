//! `cargo chaos`: injects faults into workers, server and network, and checks what became of every job.

fn main() -> std::process::ExitCode {
    torture::chaos::main()
}
