//! Builds the documentation as a book in the folder `book`. Run it with `cargo book` or `cargo book --open`. Requires mdBook.

use std::{
    env,
    process::{Command, ExitCode},
};

fn main() -> ExitCode {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
    match Command::new("mdbook").args(["build", docs]).args(env::args_os().skip(1)).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            eprintln!("mdbook: {status}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("mdbook cannot be started: {error}; install it with `cargo install mdbook`");
            ExitCode::FAILURE
        }
    }
}
