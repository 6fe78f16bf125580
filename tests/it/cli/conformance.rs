//! Tests the subcommand `conformance`, which runs the separate program `queue-conformance`.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use super::{CLI, command, failed, folder, text};

/// Runs `conformance` with the CLI binary that is linked into the folder, and with only the folder's `bin` in `PATH`.
fn run(folder: &Path, arguments: &[&str]) -> Output {
    let binary = folder.join("queue-worker");
    let mut command = command(binary.to_str().unwrap(), arguments);
    command
        .env("PATH", folder.join("bin"))
        .env("DATABASE_URL", "postgres://localhost/one")
        .env("QUEUE_READ_URL", "postgres://localhost/two");
    command.output().unwrap()
}

/// Writes a script called `queue-conformance`, which prints `name`, the database URLs and its arguments.
fn write_program(folder: &Path, name: &str) {
    let script = format!("#!/bin/sh\necho {name} \"$DATABASE_URL\" \"[$QUEUE_DIRECT_URL]\" \"$QUEUE_READ_URL\" \"$*\"\nexit 7\n");
    let path = folder.join("queue-conformance");
    // If this process wrote the file, a concurrently forked child could keep it open for writing, and executing it would fail.
    let write = ["-c", r#"printf '%s' "$1" >"$2" && chmod 755 "$2""#, "sh", &script, path.to_str().unwrap()];
    assert!(Command::new("sh").args(write).status().unwrap().success());
}

#[test]
fn conformance_runs_its_program_with_the_addresses_of_the_settings_and_returns_its_exit_code() {
    let folder = folder().join("conformance");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("bin")).unwrap();
    fs::hard_link(CLI, folder.join("queue-worker")).unwrap();

    let (code, error) = failed(&run(&folder, &["conformance"]));
    assert!(code == Some(2) && error.contains("`queue-conformance` was not found"), "{error}");
    let (code, error) = failed(&run(&folder, &["conformance", "--embedded"]));
    assert!(code == Some(2) && error.contains("are both set"), "the addresses are checked first: {error}");

    write_program(&folder.join("bin"), "path");
    let found = run(&folder, &["conformance", "--only", "limits", "--json"]);
    assert_eq!(text(&found.stdout), "path postgres://localhost/one [] postgres://localhost/two --only limits --json\n");
    assert_eq!(found.status.code(), Some(7));
    let found = command(folder.join("queue-worker").to_str().unwrap(), &["--database-url", "postgres://localhost/four", "conformance"])
        .env("PATH", folder.join("bin"))
        .envs([("DATABASE_URL", "postgres://localhost/one"), ("QUEUE_DIRECT_URL", "postgres://localhost/two")])
        .output()
        .unwrap();
    assert_eq!(text(&found.stdout), "path postgres://localhost/four []  \n", "a URL of another database is not used beside the given one");

    write_program(&folder, "beside");
    let found = run(&folder, &["--direct-url", "postgres://localhost/three", "conformance", "--", "--help"]);
    assert_eq!(text(&found.stdout), "beside postgres://localhost/one [postgres://localhost/three] postgres://localhost/two --help\n");
}
