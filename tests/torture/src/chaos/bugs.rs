//! Validates the checker with typical queue bugs, which are inserted into a copy of this workspace one at a time. For each bug, the test
//! scenario (scene) that provokes the bug must report a violation within a minute. Without a bug, no scene may report a violation.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::{Value, json};

use super::{copy::WorkspaceCopy, scenes::SCENES};
use crate::{
    seeded::{BUGS, Bug},
    target,
};

/// Time limit for reporting a bug, including the start of the server.
const WITHIN: Duration = Duration::from_mins(1);

/// Runs all scenes without a bug, then the scene of each bug. Returns whether every bug was reported and no scene reported a false
/// violation.
pub(super) fn check_the_checker() -> Result<bool> {
    let copy = WorkspaceCopy::new()?;
    let sound = copy.build(None)?;
    let mut right = true;
    for scene in SCENES {
        let result = play(&sound, scene)?;
        let quiet = result.reports == Some(0);
        println!("{} {:>5.1}s  without a bug: {scene}{}", mark(quiet), result.seconds, result.first_report());
        right &= quiet;
    }
    let (mut reported, mut missed) = (0, Vec::new());
    for bug in &BUGS {
        let Bug { name, scene, .. } = bug;
        let result = play(&copy.build(Some(bug))?, scene)?;
        let seen = result.reports.is_some_and(|reports| reports > 0) && result.seconds <= WITHIN.as_secs_f64();
        println!("{} {:>5.1}s  {name}{}", mark(seen), result.seconds, result.first_report());
        if seen { reported += 1 } else { missed.push(*name) }
    }
    println!("{reported}/{}", BUGS.len());
    println!("{}", json!({ "reported": reported, "applicable": BUGS.len(), "missed": missed, "quiet_without_bugs": right }));
    Ok(right && missed.is_empty())
}

fn mark(good: bool) -> &'static str {
    if good { "ok " } else { "BAD" }
}

/// Outcome of running a scene.
struct SceneResult {
    /// Number of reported violations, or `None` if the scene did not finish.
    reports: Option<usize>,
    first: String,
    seconds: f64,
}

impl SceneResult {
    fn first_report(&self) -> String {
        let first: String = self.first.chars().take(200).collect();
        if first.is_empty() { first } else { format!(" <- {first}") }
    }
}

/// Runs a scene with the program that was built in the copy of the workspace.
fn play(program: &Path, scene: &str) -> Result<SceneResult> {
    let began = Instant::now();
    let mut child = Command::new(program);
    child.args(["--scene", scene]).env("CARGO_TARGET_DIR", target()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn()?;
    while child.try_wait()?.is_none() {
        if began.elapsed() > WITHIN + Duration::from_secs(30) {
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let seconds = began.elapsed().as_secs_f64();
    let last: Option<Value> = stdout.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let Some(report) = last else {
        return Ok(SceneResult { reports: None, first: stderr.lines().last().unwrap_or("it took too long").to_owned(), seconds });
    };
    let first = report["reports"][0].as_str().unwrap_or_default().to_owned();
    Ok(SceneResult { reports: report["reported"].as_u64().map(|reports| reports as usize), first, seconds })
}
