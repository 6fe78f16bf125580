//! A worker binary in which a thread panics after a while, to see what that leaves behind on a terminal.

use std::{process::ExitCode, thread, time::Duration};

use tests as _;

fn main() -> ExitCode {
    thread::spawn(|| {
        thread::sleep(Duration::from_secs(4));
        panic!("it is time to panic");
    });
    queue_worker::cli::main()
}
