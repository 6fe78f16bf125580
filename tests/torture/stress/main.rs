//! `cargo stress`: runs the tier 1 tests (`tests/README.md`) five times without retries, while four busy loops occupy the CPU. A test
//! that fails here depends on the speed of the machine.

use std::{
    env, hint,
    process::{Command, ExitCode},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

fn main() -> ExitCode {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["nextest", "run", "--workspace", "--profile", "ci", "--retries", "0", "--stress-count", "5"]);
        // Removes this package's variables from the environment. Otherwise cargo would rebuild the crates that read them.
        for (name, _) in env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
                cargo.env_remove(name);
            }
        }
        let run = cargo.args(env::args().skip(1)).status();
        is_over.store(true, Relaxed);
        match run {
            Ok(status) if status.success() => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("stress: cargo does not start: {error}");
                ExitCode::from(2)
            }
        }
    })
}
