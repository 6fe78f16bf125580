//! `main!` stands at module level.

fn main() {
    queue_worker::main!();
}
