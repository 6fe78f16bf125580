//! The check of the checker: bugs that queues have had, put into a copy of this one, one at a time. Each must be reported by the scene that
//! provokes it within a minute; without any bug no scene may report anything.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::{Value, json};

use super::{copy::Copy, scenes::SCENES};
use crate::{
    seeded::{BUGS, Bug},
    target,
};

/// How long a bug may stay unreported, the start of its server included.
const WITHIN: Duration = Duration::from_mins(1);

/// Runs all scenes without a bug, then each bug; returns whether the checker is right every time.
pub(super) fn check_the_checker() -> Result<bool> {
    let copy = Copy::new()?;
    let sound = copy.build(None)?;
    let mut right = true;
    for scene in SCENES {
        let played = play(&sound, scene)?;
        let quiet = played.reports == Some(0);
        println!("{} {:>5.1}s  without a bug: {scene}{}", mark(quiet), played.seconds, played.told());
        right &= quiet;
    }
    let (mut reported, mut missed) = (0, Vec::new());
    for bug in &BUGS {
        let Bug { name, scene, .. } = bug;
        let played = play(&copy.build(Some(bug))?, scene)?;
        let seen = played.reports.is_some_and(|reports| reports > 0) && played.seconds <= WITHIN.as_secs_f64();
        println!("{} {:>5.1}s  {name}{}", mark(seen), played.seconds, played.told());
        if seen { reported += 1 } else { missed.push(*name) }
    }
    println!("{reported}/{}", BUGS.len());
    println!("{}", json!({ "reported": reported, "applicable": BUGS.len(), "missed": missed, "quiet_without_bugs": right }));
    Ok(right && missed.is_empty())
}

fn mark(good: bool) -> &'static str {
    if good { "ok " } else { "BAD" }
}

/// How a scene ended.
struct Played {
    /// How much it reported; `None` if it did not get that far.
    reports: Option<usize>,
    first: String,
    seconds: f64,
}

impl Played {
    fn told(&self) -> String {
        let first: String = self.first.chars().take(200).collect();
        if first.is_empty() { first } else { format!(" <- {first}") }
    }
}

/// A scene, played by this program as it was built in the copy.
fn play(program: &Path, scene: &str) -> Result<Played> {
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
    let (said, wailed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let seconds = began.elapsed().as_secs_f64();
    let last: Option<Value> = said.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let Some(report) = last else {
        return Ok(Played { reports: None, first: wailed.lines().last().unwrap_or("it took too long").to_owned(), seconds });
    };
    let first = report["reports"][0].as_str().unwrap_or_default().to_owned();
    Ok(Played { reports: report["reported"].as_u64().map(|reports| reports as usize), first, seconds })
}
