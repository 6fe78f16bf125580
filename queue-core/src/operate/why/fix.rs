//! Suggested fixes for the causes that keep a job from running. A fix is a command, an SQL statement, or advice.

use std::collections::HashSet;

use super::{
    CauseKind,
    facts::{Facts, WhyContext},
};
use crate::{connect::KEY_HOLD, context::WOULD_FAIL_AGAIN};

/// Returns a one-line fix for a cause, or `None` if nothing needs to be done.
pub(super) fn find_fix(kind: CauseKind, facts: Facts<'_>, context: &WhyContext<'_>) -> Option<String> {
    let id = context.job.to_string();
    let fix = match kind {
        // A job that holds a key is enqueued and cancelled by the tenant's move. No worker runs the job.
        CauseKind::Cancelled | CauseKind::Expired | CauseKind::Dead if context.holds_key() => return None,
        CauseKind::Scheduled | CauseKind::NoWorker | CauseKind::Unserved if context.holds_key() => "queue-worker stores moves".to_owned(),
        CauseKind::NoSuchJob => fix_absent(facts),
        CauseKind::TableLocked | CauseKind::LimitLocked | CauseKind::Locked | CauseKind::LeaseLocked | CauseKind::OldSnapshot => {
            terminate_sessions(facts)?
        }
        CauseKind::Cancelled | CauseKind::Expired | CauseKind::Dead => fix_failed(context, facts.last_error(), &["requeue", &id]),
        CauseKind::SilentWorker if facts.number("workers") == Some(0) => "start a worker: `queue-worker run`".to_owned(),
        // `run-now` does not end a sleep, because the journal stores the end time.
        CauseKind::Scheduled if facts.text("sleep").is_some() => return None,
        CauseKind::Scheduled => fix_failed(context, facts.last_error(), &["run-now", &id]),
        CauseKind::Parked => fix_parked(facts, context)?,
        CauseKind::Blocked => fix_blocked(facts, context)?,
        CauseKind::NoWorker | CauseKind::Unserved => fix_unserved(kind, facts, context),
        CauseKind::Paused => fix_paused(facts, context),
        CauseKind::LimitUnknown => "stop these workers, or redeploy them; silent workers are not waited for".to_owned(),
        CauseKind::Limited => fix_limited(facts, context)?,
        CauseKind::Starved | CauseKind::Behind => {
            let priority = context.job_facts.and_then(|job| job.number("priority")).unwrap_or(0);
            let higher = priority.saturating_add(1).min(32_767).to_string();
            format!(
                "start more workers, raise their concurrency, or raise its priority: `{}`",
                command(context, &["priority", &id, "--to", &higher])
            )
        }
        CauseKind::WorkersBusy => "start more workers, or raise their concurrency: `queue-worker run --queue NAME=N`".to_owned(),
        _ => return None,
    };
    Some(fix)
}

/// Returns CLI commands for up to three of the jobs or signals for which a parked job is waiting.
fn fix_parked(facts: Facts<'_>, context: &WhyContext<'_>) -> Option<String> {
    const MOST: usize = 3;
    let dead: Vec<&str> = facts
        .objects("parents")
        .filter(|parent| parent.text("state") == Some("dead") && !parent.is_true("on_dead"))
        .filter_map(|parent| parent.text("id"))
        .take(MOST)
        .collect();
    if !dead.is_empty() {
        return Some(command(context, &[&["requeue"], &*dead].concat()));
    }
    let id = context.job.to_string();
    let children: Vec<Facts<'_>> = facts.objects("children").collect();
    let is_child = |name: &&str| children.iter().any(|child| child.text("wait") == Some(name));
    // A name with the reserved suffix ` (join)` denotes a wait for a child or for map jobs, not a signal.
    let is_signal = |name: &&str| !is_child(name) && !name.ends_with(" (join)");
    let signals: Vec<&str> = facts.strings("signals").into_iter().filter(is_signal).collect();
    let first = |commands: Vec<String>| {
        let others = if commands.len() > MOST { format!(", or one of {} others", commands.len() - MOST) } else { String::new() };
        let first: Vec<String> = commands.into_iter().take(MOST).map(|command| format!("`{command}`")).collect();
        (!first.is_empty()).then(|| first.join(" or ") + &others)
    };
    let why = children.iter().filter_map(|child| Some(command(context, &["why", child.text("id")?])));
    let why = first(why.collect()).map(|commands| format!("see why the child has not finished: {commands}"));
    let send = first(signals.iter().map(|name| command(context, &["signal", &id, name])).collect());
    let before = if signals.iter().take(MOST).any(|name| name.starts_with('-')) { " before `--`" } else { "" };
    let send = send.map(|commands| format!("send it, with --payload JSON{before} if it has a payload: {commands}"));
    let both: Vec<String> = [why, send].into_iter().flatten().collect();
    (!both.is_empty()).then(|| both.join("; or "))
}

/// Returns the fix for a failed job: the command `again`. If the payload is unreadable, the error may describe a remedy, which must be
/// applied first. If a requeue would fail again, the fix is to enqueue a new job and discard the failed job.
fn fix_failed(context: &WhyContext<'_>, error: Option<&str>, again: &[&str; 2]) -> String {
    let error = error.unwrap_or_default();
    if error.contains(WOULD_FAIL_AGAIN) {
        return format!("enqueue it again as its error says, then `{}`", command(context, &["discard", again[1]]));
    }
    let again = command(context, again);
    if error.contains("requeue this job") { format!("do what its error says, then `{again}`") } else { again }
}

/// Formats a CLI command that applies to the job's store, quoted for a shell.
fn command(context: &WhyContext<'_>, words: &[&str]) -> String {
    cli_command(context.store.schema(), words)
}

fn cli_command(schema: &str, words: &[&str]) -> String {
    let schema_option: &[&str] = if schema == "queue" { &[] } else { &["--schema", schema] };
    // A signal name that begins with `-` would be parsed as an option, so the name goes last, after `--`.
    let (words, last) = match words {
        ["signal", id, name] if name.starts_with('-') => (&["signal", *id][..], &["--", *name][..]),
        words => (words, &[][..]),
    };
    let words: Vec<String> = words.iter().chain(schema_option).chain(last).map(|word| shell_quoted(word)).collect();
    format!("queue-worker {}", words.join(" "))
}

/// Quotes a word for a shell. Double quotes have the same meaning in POSIX shells, cmd and PowerShell, unless the word contains a character
/// that one of the shells expands. A word with such a character is quoted for POSIX shells only.
fn shell_quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_.:-/=".contains(letter);
    let expands_in_quotes = |letter: char| "\"$`\\!%^“”„".contains(letter) || letter.is_control();
    match word {
        "" => "\"\"".to_owned(),
        _ if word.chars().all(is_plain) => word.to_owned(),
        _ if !word.contains(expands_in_quotes) => format!("\"{word}\""),
        _ => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn fix_absent(facts: Facts<'_>) -> String {
    let stores: Vec<String> = facts
        .0
        .get("stores")
        .and_then(|stores| stores.as_array())
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str())
        .map(shell_quoted)
        .collect();
    if facts.objects("sessions").next().is_some() {
        return "commit there, and try again".to_owned();
    }
    if stores.is_empty() {
        return "check that this is the database it was enqueued into, and that the transaction was committed".to_owned();
    }
    format!("try another store of this database with `--schema`: {}", stores.join(", "))
}

/// Returns SQL statements that terminate the sessions listed in `facts`. If a listed session is waiting for other sessions, the
/// statements terminate these other sessions instead. Prepared transactions are rolled back, and replication slots are dropped.
fn terminate_sessions(facts: Facts<'_>) -> Option<String> {
    let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let end = |pid: i64| format!("select pg_terminate_backend({pid})");
    let mut ends: Vec<String> = Vec::new();
    for session in facts.objects("sessions") {
        match (session.text("prepared"), session.text("slot"), session.blockers().as_slice()) {
            (Some(name), ..) => ends.push(format!("rollback prepared {}", literal(name))),
            (_, Some(name), _) => ends.push(format!("select pg_drop_replication_slot({})", literal(name))),
            (None, None, []) => ends.extend(session.number("pid").map(end)),
            (None, None, blockers) => ends.extend(blockers.iter().copied().map(end)),
        }
    }
    let mut known = HashSet::new();
    ends.retain(|end| known.insert(end.clone()));
    (!ends.is_empty()).then(|| ends.join("; "))
}

fn fix_blocked(facts: Facts<'_>, context: &WhyContext<'_>) -> Option<String> {
    let head = facts.text("head")?;
    Some(match facts.text("head_state") {
        _ if facts.text("head_type") == Some(KEY_HOLD) => "queue-worker stores moves".to_owned(),
        Some("dead") => fix_failed(context, facts.text("head_error"), &["requeue", head]),
        Some("scheduled") if facts.text("head_sleep").is_none() => fix_failed(context, facts.text("head_error"), &["run-now", head]),
        _ => command(context, &["why", head]),
    })
}

fn fix_unserved(kind: CauseKind, facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    let job_text = |name| context.job_facts.and_then(|job| job.text(name)).unwrap_or_default();
    let (queue, job_type) = (job_text("queue"), job_text("job_type"));
    if kind == CauseKind::NoWorker || facts.number("draining") > Some(0) {
        return format!("start a worker whose binary has the type {job_type}: `queue-worker run`");
    }
    if facts.number("of_queue") == Some(0) {
        return format!("start a worker that serves it: `queue-worker run --queue {}`", shell_quoted(queue));
    }
    let version = context.job_facts.and_then(|job| job.number("version")).unwrap_or(1);
    let which = if version > 1 { format!("version {version} of the type {job_type}") } else { format!("the type {job_type}") };
    let deploy = format!("deploy a worker that serves the queue {queue} and has {which} (`queue-worker jobs` shows what a binary has)");
    let has_versions = facts.0.get("versions").and_then(|versions| versions.as_array()).is_some_and(|versions| !versions.is_empty());
    if has_versions || facts.number("of_type") > Some(0) {
        return deploy;
    }
    format!("{deploy}; or, if the type is misspelt or removed, `{}`", command(context, &["cancel", &context.job.to_string()]))
}

fn fix_paused(facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    let mut words = vec!["resume"];
    if let Some(queue) = facts.text("queue") {
        words.extend(["--queue", queue]);
    }
    if let Some(job_type) = facts.text("job_type") {
        words.extend(["--type", job_type]);
    }
    if words.len() == 1 {
        words.push("--all");
    }
    command(context, &words)
}

fn fix_limited(facts: Facts<'_>, context: &WhyContext<'_>) -> Option<String> {
    let name = facts.text("limit")?;
    let more = facts.number("concurrency").map(|most| most.saturating_add(1).max(1).to_string());
    if let (true, Some(key), Some(more), None) = (facts.is_true("keyed"), facts.text("key"), &more, facts.float("next_ms")) {
        return Some(command(context, &["limits", "set", name, "--key", key, "--concurrency", more]));
    }
    if facts.is_true("by_operator") {
        return Some(command(context, &["limits", "unset", name]));
    }
    let mut words = vec!["limits", "set", name];
    match (facts.float("next_ms"), &more) {
        (Some(_), more) => words.extend(["--concurrency", more.as_deref().unwrap_or("none"), "--rate", "none"]),
        (None, Some(more)) => words.extend(["--concurrency", more]),
        (None, None) => return None,
    }
    Some(command(context, &words))
}

#[cfg(test)]
mod tests {
    use super::{cli_command, shell_quoted};

    #[test]
    fn signal_names_like_options_are_not_options() {
        assert_eq!(cli_command("queue", &["signal", "7", "-x"]), "queue-worker signal 7 -- -x");
        assert_eq!(cli_command("jobs", &["signal", "7", "--all of it"]), "queue-worker signal 7 --schema jobs -- \"--all of it\"");
        assert_eq!(cli_command("jobs", &["signal", "7", "paid"]), "queue-worker signal 7 paid --schema jobs");
    }

    #[test]
    fn words_are_quoted_for_all_shells_or_for_posix() {
        for (word, expected) in [
            ("mail-2", "mail-2"),
            ("", "\"\""),
            ("acme corp", "\"acme corp\""),
            ("it's; ls & del", "\"it's; ls & del\""),
            ("a\"b", "'a\"b'"),
            ("$HOME", "'$HOME'"),
            ("%PATH%", "'%PATH%'"),
            ("it's `ls`", r"'it'\''s `ls`'"),
            ("tail\\", r"'tail\'"),
        ] {
            assert_eq!(shell_quoted(word), expected, "{word}");
        }
    }
}
