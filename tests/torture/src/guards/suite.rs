//! Test binaries that must detect mutations. The binaries are built with `--cfg queue_mutants` in a separate target directory, and run
//! until one test fails.

use std::{
    collections::HashSet,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::mpsc,
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{root, target};

/// Tests that are skipped because they use no statements of the product, fail by themselves on a busy machine, or are run manually.
const SKIPPED: [&str; 8] = [
    "a_worker_runs_housekeeping_by_itself",
    "heartbeats_race_without",
    "embedded::user::user",
    "of_ten_schedules_of_a_second_99_of_100_ticks_are_at_most_50_ms_late",
    "the_same_with_200_keys_200_jobs_each_and_6_workers",
    "of_100_permits_that_are_freed_99_lead_to_the_next_start_within_20_ms",
    "a_hundred_idle_stores_cost_as_little",
    "an_answer_takes_less_than_a_tenth_of_a_second_in_a_large_store",
];

/// Test binary with its tests.
pub(super) struct Suite {
    binary: PathBuf,
    /// Working directory of the test binary.
    folder: PathBuf,
    /// Names of the tests in the binary.
    tests: Vec<String>,
}

/// Builds the test suite, including the stress tests of the statements.
pub(super) fn build() -> Result<Vec<Suite>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "test",
        "--quiet",
        "-p",
        "tests",
        "-p",
        "torture",
        "--test",
        "it",
        "--test",
        "attacks",
        "--no-run",
        "--message-format",
        "json",
    ]);
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    cargo.env("RUSTFLAGS", format!("{flags} --cfg queue_mutants")).env("CARGO_TARGET_DIR", target().join("mutants"));
    let output = cargo.current_dir(root()).stderr(Stdio::inherit()).output()?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_tests = messages.filter(|message| message["target"]["kind"][0] == "test");
    let suites: Vec<Suite> = of_tests.filter_map(|message| Suite::of(&message).transpose()).collect::<Result<_>>()?;
    if suites.len() != 2 {
        bail!("the build of the tests failed");
    }
    Ok(suites)
}

impl Suite {
    /// Creates the suite of a test binary from cargo's build message. Returns `None` if the message names no binary.
    fn of(message: &Value) -> Result<Option<Self>> {
        let (Some(binary), Some(manifest)) = (message["executable"].as_str(), message["manifest_path"].as_str()) else { return Ok(None) };
        let folder = PathBuf::from(manifest).parent().context("the manifest has no directory")?.to_owned();
        let listed = Command::new(binary).args(["--list", "--format", "terse"]).current_dir(&folder).output()?;
        let tests =
            String::from_utf8_lossy(&listed.stdout).lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect();
        Ok(Some(Self { binary: binary.into(), folder, tests }))
    }

    /// Returns whether the filter selects a test of this binary.
    pub(super) fn has(&self, filter: &str) -> bool {
        filter.split(' ').take_while(|word| *word != "--skip").any(|part| self.tests.iter().any(|test| test.contains(part)))
    }

    /// Runs the tests selected by a filter until one fails. Returns the failed test, or `None` if all tests pass.
    pub(super) fn first_failure(
        &self,
        filter: &str,
        pardoned: &HashSet<String>,
        settings: &[(&str, String)],
        until: Instant,
    ) -> Result<Option<String>> {
        let skip = pardoned.iter().map(String::as_str).chain(SKIPPED).flat_map(|name| ["--skip", name]);
        let mut command = Command::new(&self.binary);
        command
            .args(filter.split(' ').chain(skip))
            .args(["--include-ignored", "--test-threads", "3"])
            .current_dir(&self.folder)
            .envs(settings.iter().map(|(key, value)| (key, value)))
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        let mut tests = command.spawn()?;
        let group = tests.id();
        let output = tests.stdout.take().context("the tests have no stdout")?;
        let (line, lines) = mpsc::channel();
        let reader =
            std::thread::spawn(move || BufReader::new(output).lines().map_while(Result::ok).for_each(|text| drop(line.send(text))));
        let failed = wait(&lines, until);
        // Kills the whole process group, including processes that tests have started.
        let _ = Command::new("kill").args(["-9", "--", &format!("-{group}")]).stderr(Stdio::null()).status();
        let status = tests.wait()?;
        let _ = reader.join();
        if failed.is_none() && !status.success() {
            bail!("the tests exited with {status} but reported no failure: {filter}");
        }
        Ok(failed)
    }
}

/// Returns the first test that the output lines report as failed, or a placeholder if the tests are still running at the time `until`.
/// Returns `None` if the output ends without a failed test.
fn wait(lines: &mpsc::Receiver<String>, until: Instant) -> Option<String> {
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(text) => {
                let test = text.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "));
                if let Some((name, "FAILED")) = test {
                    return Some(name.to_owned());
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => return Some("a test that never ends".to_owned()),
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
        }
    }
}
