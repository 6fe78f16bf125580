//! The check of the checker: bugs that queues have had, put into this one, one at a time. Each must be reported by the scene that provokes it
//! within a minute; without any bug no scene may report anything.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{run::results, scenes::SCENES};

/// One bug, and the scene that must report it.
struct Bug {
    name: &'static str,
    scene: &'static str,
    is: Is,
}

/// Where it is.
enum Is {
    /// Behind a switch in the code.
    Switch(&'static str),
    /// In statements: file, what stands there, what stands there instead.
    Edits(&'static [(&'static str, &'static str, &'static str)]),
}

const BUGS: [Bug; 12] = [
    Bug {
        name: "settle by id only",
        scene: "zombies",
        is: Is::Edits(&[("settle.sql", "join listed l on l.token = s.token and l.id = s.id", "cross join (select false as called_off) l")]),
    },
    Bug {
        name: "settle by state only",
        scene: "zombies",
        is: Is::Edits(&[
            ("settle.sql", "where l.token = any ($1)\n", "where l.ids && $2\n"),
            ("settle.sql", "join listed l on l.token = s.token and l.id = s.id", "join listed l on l.id = s.id"),
        ]),
    },
    Bug {
        name: "attempt number instead of token",
        scene: "zombies",
        is: Is::Edits(&[
            ("settle.sql", "where l.token = any ($1)\n", "where l.ids && $2\n"),
            (
                "settle.sql",
                "join listed l on l.token = s.token and l.id = s.id",
                "join listed l on l.id = s.id and l.attempts = s.attempts",
            ),
        ]),
    },
    Bug {
        name: "attempt counted at the end",
        scene: "kills",
        is: Is::Edits(&[
            ("claim.sql", "least(attempts + 1, 32767)::smallint as attempts", "attempts"),
            ("claim.sql", "t.id, t.attempts,", "t.id, (t.attempts + 1)::smallint as attempts,"),
        ]),
    },
    // Locks and reads under one snapshot, which is older than what the lock waited for.
    Bug {
        name: "recover in one statement",
        scene: "zombies",
        is: Is::Edits(&[
            ("silent.sql", "for update of l skip locked", ""),
            (
                "recover.sql",
                "delete from queue.lease\n  where token = any ($1)\n  returning claimed_at, ids, attempts, crashes, called_off\n)",
                "select claimed_at, ids, attempts, crashes, called_off from queue.lease where token = any ($1)\n), gone as (\n  delete from queue.lease where token = any ($1)\n)",
            ),
        ]),
    },
    Bug { name: "no floor rescan", scene: "late", is: Is::Switch("no_rescan") },
    Bug { name: "idle flag without the second claim", scene: "sleep", is: Is::Switch("idle_flag_alone") },
    Bug { name: "heartbeat on the handlers' runtime", scene: "busy", is: Is::Switch("heartbeat_among_handlers") },
    Bug {
        name: "recovery that ignores crashes",
        scene: "poison",
        is: Is::Edits(&[("recover.sql", "(u.crashes + 1)::smallint as crashes", "u.crashes")]),
    },
    Bug { name: "payloads decoded as a batch", scene: "unreadable", is: Is::Switch("decode_as_a_batch") },
    Bug { name: "effects committed before the settle", scene: "kills", is: Is::Switch("effects_first") },
    // Every job is ready at once, and a claim passes over those of which an earlier one of the key is seen: one that is not yet committed is not.
    Bug {
        name: "FIFO by NOT EXISTS",
        scene: "order",
        is: Is::Edits(&[
            ("0003_keys.sql", "  perform queue.lock_key(job_key);\n", ""),
            ("0003_keys.sql", "where not exists (select from queue.active_key a where a.key = job_key) and", "where false and"),
            ("0003_keys.sql", "is_head := found;", "is_head := true;"),
            (
                "claim.sql",
                "where r.lane = l.lane and r.seq >= l.floor\n",
                "where r.lane = l.lane and r.seq >= l.floor and not exists (
                   select from queue.job j join queue.job e on e.key = j.key and e.id < j.id join queue.living v on v.id = e.id where j.id = r.id
                 )\n",
            ),
        ]),
    },
];

/// How long a bug may stay unreported, the start of its server included.
const WITHIN: Duration = Duration::from_mins(1);

/// Runs all scenes without a bug, then each bug; returns whether the checker is right every time.
pub(super) fn check_the_checker() -> Result<bool> {
    let folder = results("bugs")?;
    let mut right = true;
    for scene in SCENES {
        let played = play(scene, &[])?;
        let quiet = played.reports == Some(0);
        println!("{} {:>5.1}s  without a bug: {scene}{}", mark(quiet), played.seconds, played.told());
        right &= quiet;
    }
    let (mut reported, mut missed) = (0, Vec::new());
    for Bug { name, scene, is } in &BUGS {
        let settings = match is {
            Is::Switch(switch) => vec![("QUEUE_BUG", (*switch).to_owned())],
            Is::Edits(edits) => vec![("QUEUE_MUTANTS", write(&folder, name, edits)?)],
        };
        let played = play(scene, &settings)?;
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

fn write(folder: &Path, name: &str, edits: &[(&str, &str, &str)]) -> Result<String> {
    let path = folder.join(format!("{}.json", name.replace(' ', "-")));
    let edits: Vec<Value> = edits.iter().map(|(file, from, to)| json!({ "file": file, "from": from, "to": to })).collect();
    fs::write(&path, serde_json::to_string(&edits)?)?;
    Ok(path.to_str().context("the folder's name is no UTF-8")?.to_owned())
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

/// A scene in a process of its own.
fn play(scene: &str, settings: &[(&str, String)]) -> Result<Played> {
    let began = Instant::now();
    let mut child = Command::new(std::env::current_exe()?);
    child
        .args(["--scene", scene])
        .envs(settings.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
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
