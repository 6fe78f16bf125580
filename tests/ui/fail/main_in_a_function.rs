//! `main!` must be invoked at module level.

fn main() {
    queue_worker::main!();
}
