//! What to do about a cause: a command, a statement, or advice.

use super::{
    CauseKind,
    facts::{Facts, Look},
};

/// One line; `None` if there is nothing to be done.
pub(super) fn fix(kind: CauseKind, facts: Facts<'_>, look: &Look<'_>) -> Option<String> {
    let id = look.job.to_string();
    let said = match kind {
        CauseKind::NoSuchJob => absent(facts),
        CauseKind::TableLocked | CauseKind::LimitLocked | CauseKind::Locked | CauseKind::LeaseLocked | CauseKind::OldSnapshot => {
            end_of_sessions(facts)?
        }
        CauseKind::Cancelled | CauseKind::Expired | CauseKind::Dead => command(look, &["requeue", &id]),
        CauseKind::SilentWorker if facts.number("workers") == Some(0) => "start a worker: `queue-worker run`".to_owned(),
        CauseKind::Scheduled => command(look, &["run-now", &id]),
        CauseKind::Parked => parked(facts, look)?,
        CauseKind::Blocked => of_head(facts, look)?,
        CauseKind::NoWorker | CauseKind::Unserved => serve(kind, facts, look),
        CauseKind::Paused => resume(facts, look),
        CauseKind::LimitUnknown => "stop these workers, or deploy them anew; a silent one is not waited for".to_owned(),
        CauseKind::Limited => limited(facts, look)?,
        CauseKind::Starved | CauseKind::Behind => {
            let priority = look.of_job.and_then(|job| job.number("priority")).unwrap_or(0);
            let higher = priority.saturating_add(1).min(32_767).to_string();
            format!(
                "start more workers, give them more concurrency, or let it go first: `{}`",
                command(look, &["priority", &id, "--to", &higher])
            )
        }
        CauseKind::WorkersBusy => "start more workers, or give them more concurrency: `queue-worker run --queue NAME=N`".to_owned(),
        _ => return None,
    };
    Some(said)
}

/// A command for each of the first few.
fn parked(facts: Facts<'_>, look: &Look<'_>) -> Option<String> {
    const MOST: usize = 3;
    let dead: Vec<&str> = facts
        .each("parents")
        .filter(|parent| parent.text("state") == Some("dead") && !parent.is("on_dead"))
        .filter_map(|parent| parent.text("id"))
        .take(MOST)
        .collect();
    if !dead.is_empty() {
        return Some(command(look, &[&["requeue"], &*dead].concat()));
    }
    let id = look.job.to_string();
    let children: Vec<Facts<'_>> = facts.each("children").collect();
    let is_child = |name: &&str| children.iter().any(|child| child.text("wait") == Some(name));
    // No signal is called as the end of what it has mapped.
    let is_signal = |name: &&str| !is_child(name) && !name.ends_with(" (join)");
    let signals: Vec<&str> = facts.texts("signals").into_iter().filter(is_signal).collect();
    let first = |commands: Vec<String>| {
        let others = if commands.len() > MOST { format!(", or one of {} others", commands.len() - MOST) } else { String::new() };
        let first: Vec<String> = commands.into_iter().take(MOST).map(|command| format!("`{command}`")).collect();
        (!first.is_empty()).then(|| first.join(" or ") + &others)
    };
    let why = children.iter().filter_map(|child| Some(command(look, &["why", child.text("id")?])));
    let why = first(why.collect()).map(|commands| format!("see why the child is not over: {commands}"));
    let send = first(signals.iter().map(|name| command(look, &["signal", &id, name])).collect());
    let before = if signals.iter().take(MOST).any(|name| name.starts_with('-')) { " before `--`" } else { "" };
    let send = send.map(|commands| format!("send it, with --payload JSON{before} if it is to say something: {commands}"));
    let both: Vec<String> = [why, send].into_iter().flatten().collect();
    (!both.is_empty()).then(|| both.join("; or "))
}

/// A command of ours on this store, to be typed as it stands.
fn command(look: &Look<'_>, words: &[&str]) -> String {
    typed(look.store.schema(), words)
}

fn typed(schema: &str, words: &[&str]) -> String {
    let of_store: &[&str] = if schema == "queue" { &[] } else { &["--schema", schema] };
    // What somebody has called so is no option: it stands last, behind what ends the options.
    let (words, last) = match words {
        ["signal", id, name] if name.starts_with('-') => (&["signal", *id][..], &["--", *name][..]),
        words => (words, &[][..]),
    };
    let words: Vec<String> = words.iter().chain(of_store).chain(last).map(|word| quoted(word)).collect();
    format!("queue-worker {}", words.join(" "))
}

/// A word as a shell takes it. Between double quotes it is the same to the shells of POSIX and to both of Windows, unless it holds what one of them
/// looks for there; then it is quoted for POSIX alone.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_.:-/=".contains(letter);
    let acts_in_quotes = |letter: char| "\"$`\\!%^“”„".contains(letter) || letter.is_control();
    match word {
        "" => "\"\"".to_owned(),
        _ if word.chars().all(is_plain) => word.to_owned(),
        _ if !word.contains(acts_in_quotes) => format!("\"{word}\""),
        _ => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn absent(facts: Facts<'_>) -> String {
    let stores: Vec<String> = facts
        .0
        .get("stores")
        .and_then(|stores| stores.as_array())
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str())
        .map(quoted)
        .collect();
    if facts.each("sessions").next().is_some() {
        return "commit there, and ask again".to_owned();
    }
    if stores.is_empty() {
        return "look whether this is the database that it was enqueued into, and whether that transaction was committed".to_owned();
    }
    format!("ask another store of this database with `--schema`: {}", stores.join(", "))
}

/// What ends these sessions, for whoever may; of one that waits for others, those.
fn end_of_sessions(facts: Facts<'_>) -> Option<String> {
    let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let end = |pid: i64| format!("select pg_terminate_backend({pid})");
    let mut ends: Vec<String> = Vec::new();
    for session in facts.each("sessions") {
        match (session.text("prepared"), session.text("slot"), session.blockers().as_slice()) {
            (Some(name), ..) => ends.push(format!("rollback prepared {}", literal(name))),
            (_, Some(name), _) => ends.push(format!("select pg_drop_replication_slot({})", literal(name))),
            (None, None, []) => ends.extend(session.number("pid").map(end)),
            (None, None, blockers) => ends.extend(blockers.iter().copied().map(end)),
        }
    }
    ends.dedup();
    (!ends.is_empty()).then(|| ends.join("; "))
}

fn of_head(facts: Facts<'_>, look: &Look<'_>) -> Option<String> {
    let head = facts.text("head")?;
    Some(match facts.text("head_state") {
        Some("dead") => command(look, &["requeue", head]),
        Some("scheduled") => command(look, &["run-now", head]),
        _ => command(look, &["why", head]),
    })
}

fn serve(kind: CauseKind, facts: Facts<'_>, look: &Look<'_>) -> String {
    let of_job = |name| look.of_job.and_then(|job| job.text(name)).unwrap_or_default();
    let (queue, job_type) = (of_job("queue"), of_job("job_type"));
    if kind == CauseKind::NoWorker || facts.number("draining") > Some(0) {
        return format!("start a worker whose binary has the type {job_type}: `queue-worker run`");
    }
    if facts.number("of_queue") == Some(0) {
        return format!("start a worker that serves it: `queue-worker run --queue {}`", quoted(queue));
    }
    let version = look.of_job.and_then(|job| job.number("version")).unwrap_or(1);
    let which = if version > 1 { format!("version {version} of the type {job_type}") } else { format!("the type {job_type}") };
    format!("deploy a worker that serves the queue {queue} and has {which}; `queue-worker jobs` shows what a binary has")
}

fn resume(facts: Facts<'_>, look: &Look<'_>) -> String {
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
    command(look, &words)
}

fn limited(facts: Facts<'_>, look: &Look<'_>) -> Option<String> {
    let name = facts.text("limit")?;
    let more = facts.number("concurrency").map(|most| most.saturating_add(1).max(1).to_string());
    if let (true, Some(key), Some(more), None) = (facts.is("keyed"), facts.text("key"), &more, facts.float("next_ms")) {
        return Some(command(look, &["limits", "set", name, "--key", key, "--concurrency", more]));
    }
    if facts.is("by_operator") {
        return Some(command(look, &["limits", "unset", name]));
    }
    let mut words = vec!["limits", "set", name];
    match (facts.float("next_ms"), &more) {
        (Some(_), more) => words.extend(["--concurrency", more.as_deref().unwrap_or("none"), "--rate", "none"]),
        (None, Some(more)) => words.extend(["--concurrency", more]),
        (None, None) => return None,
    }
    Some(command(look, &words))
}

#[cfg(test)]
mod tests {
    use super::{quoted, typed};

    #[test]
    fn a_signal_that_is_called_as_an_option_is_no_option() {
        assert_eq!(typed("queue", &["signal", "7", "-x"]), "queue-worker signal 7 -- -x");
        assert_eq!(typed("jobs", &["signal", "7", "--all of it"]), "queue-worker signal 7 --schema jobs -- \"--all of it\"");
        assert_eq!(typed("jobs", &["signal", "7", "paid"]), "queue-worker signal 7 paid --schema jobs");
    }

    #[test]
    fn a_word_is_quoted_for_every_shell_that_can_be_and_else_for_those_of_posix() {
        for (word, wanted) in [
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
            assert_eq!(quoted(word), wanted, "{word}");
        }
    }
}
