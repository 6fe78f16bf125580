//! A cause as a sentence.

use super::{
    CauseKind,
    facts::{Facts, Look, ms},
};
use crate::{define::JobState, results};

/// The sentence, on one line; `None` if this release does not know the cause.
pub(super) fn says(kind: CauseKind, facts: Facts<'_>, look: &Look<'_>) -> Option<String> {
    let said = match kind {
        CauseKind::NoSuchJob => absent(facts, look),
        CauseKind::TableLocked => shut(facts, look),
        CauseKind::Completed | CauseKind::Cancelled | CauseKind::Expired | CauseKind::Dead => over(kind, facts, look),
        CauseKind::Running | CauseKind::Cancelling | CauseKind::SilentWorker => runs(kind, facts, look),
        CauseKind::Parked => parked(facts, look),
        CauseKind::Scheduled | CauseKind::Due => waits(kind, facts, look),
        CauseKind::Blocked | CauseKind::KeyFree => keyed(kind, facts, look),
        CauseKind::PastExpiry => {
            "the time until which it may begin has passed: it does not run, and a worker is about to expire it".to_owned()
        }
        CauseKind::NoWorker | CauseKind::Unserved => unserved(kind, facts, look),
        CauseKind::Paused => paused(facts, look),
        CauseKind::LimitUnknown | CauseKind::Limited => limited(kind, facts, look),
        CauseKind::LimitLocked => {
            let name = facts.text("limit").unwrap_or_default();
            format!("nothing begins under the limit {name}: {} has it locked", sessions(facts, look))
        }
        CauseKind::Locked => format!("claims pass over it: {} has its entry locked", sessions(facts, look)),
        CauseKind::LeaseLocked if facts.is("silent") => {
            format!("its worker is silent, and it cannot be taken back: {} has its lease locked", sessions(facts, look))
        }
        CauseKind::LeaseLocked => format!("what comes of it cannot be written: {} has its lease locked", sessions(facts, look)),
        CauseKind::Suspect => suspect(facts),
        CauseKind::Starved | CauseKind::Behind | CauseKind::WorkersBusy => in_turn(kind, facts, look),
        CauseKind::OldSnapshot => old(facts, look),
        CauseKind::Nothing => nothing(facts, look),
        CauseKind::Other => return None,
    };
    Some(said)
}

fn name<'a>(look: &'a Look<'_>, of: &str) -> &'a str {
    look.of_job.and_then(|job| job.text(of)).unwrap_or_default()
}

/// `the type mail, version 2`.
fn versioned(look: &Look<'_>) -> String {
    let version = look.of_job.and_then(|job| job.number("version")).unwrap_or(1);
    let more = if version > 1 { format!(" in version {version}") } else { String::new() };
    format!("the type {}{more}", name(look, "job_type"))
}

/// Every session that is named, with what may be seen of it.
fn sessions(facts: Facts<'_>, look: &Look<'_>) -> String {
    let told: Vec<String> = facts.each("sessions").map(|session| one_session(session, look)).collect();
    if told.is_empty() { "a session that has ended meanwhile".to_owned() } else { told.join(" and ") }
}

fn one_session(session: Facts<'_>, look: &Look<'_>) -> String {
    let since = session.time("since").map_or_else(String::new, |since| format!(", in a transaction since {}", look.when(since)));
    if let Some(name) = session.text("prepared") {
        return format!("the prepared transaction `{name}`{since}");
    }
    if let Some(name) = session.text("slot") {
        return format!("the replication slot `{name}`");
    }
    let pid = session.number("pid").unwrap_or(0);
    let of = [session.text("application").filter(|name| !name.is_empty()), session.text("role")];
    let of: Vec<String> = of.into_iter().flatten().map(|name| format!("`{name}`")).collect();
    let state = session.text("state").map_or_else(String::new, |state| format!(", {state}"));
    let unseen = if session.is("visible") { "" } else { ", of which you may not see more" };
    let blockers: Vec<String> = session.blockers().iter().map(ToString::to_string).collect();
    let waits = if blockers.is_empty() { String::new() } else { format!(", which waits for session {}", blockers.join(", ")) };
    let own = if session.is("own") { "your own session, " } else { "session " };
    format!("{own}{pid} ({}{since}{state}{unseen}){waits}", of.join(" of "))
}

fn absent(facts: Facts<'_>, look: &Look<'_>) -> String {
    let id = look.job;
    if facts.is("future") {
        return format!("there is no job {id}, and this store has not given out such an id yet: it is of another store or database");
    }
    let Some(given) = facts.time("given_at") else {
        return format!("there is no job {id}: no store gives out such an id");
    };
    let given = look.when(given);
    if facts.each("sessions").next().is_some() {
        return format!(
            "there is no job {id} that is committed; its id is of {given}, and {} has enqueued jobs since before",
            sessions(facts, look)
        );
    }
    match (facts.time("given_at"), facts.time("oldest_at")) {
        (Some(at), Some(oldest)) if at < oldest => {
            format!("there is no job {id}; its id is of {given}, and all that is left here is younger: it was deleted after the retention")
        }
        _ => format!(
            "there is no job {id}; its id is of {given}: its enqueue was rolled back, or is of another store, or it was discarded, or completed as \
             a type that keeps no record"
        ),
    }
}

fn shut(facts: Facts<'_>, look: &Look<'_>) -> String {
    format!("nobody can read or claim jobs: {} has tables of the store to itself, or waits for that", sessions(facts, look))
}

fn over(kind: CauseKind, facts: Facts<'_>, look: &Look<'_>) -> String {
    let when = facts.time("finished_at").map_or_else(String::new, |at| format!(" at {}", look.when(at)));
    let attempts = facts.number("attempts").unwrap_or(0);
    let last = facts.text("error").or_else(|| facts.each("failures").last().and_then(|failure| failure.text("error")));
    let why = last.map_or_else(String::new, |error| format!(": {}", one_line(error)));
    match kind {
        CauseKind::Completed => {
            let took = facts.float("ran_ms").map_or_else(String::new, |took| format!(", in {}", ms(took)));
            format!("it has completed{when}, at attempt {attempts}{took}")
        }
        CauseKind::Cancelled if attempts == 0 => format!("it was cancelled{when}, before it had begun"),
        CauseKind::Cancelled if attempts == 1 => format!("it was cancelled{when}, after 1 attempt{why}"),
        CauseKind::Cancelled => format!("it was cancelled{when}, after {attempts} attempts{why}"),
        CauseKind::Expired => format!("it expired{when}: it had not begun in time"),
        _ => format!("it is dead since{}, after attempt {attempts}{why}", when.trim_start_matches(" at")),
    }
}

fn runs(kind: CauseKind, facts: Facts<'_>, look: &Look<'_>) -> String {
    let since = facts.time("claimed_at").map_or_else(String::new, |at| format!(" since {}", look.when(at)));
    let Some(name) = facts.text("name") else {
        return format!("its worker is gone, which had it{since}; {}", taken_back(facts));
    };
    let place = format!("`{name}` ({}, process {})", facts.text("host").unwrap_or_default(), facts.number("pid").unwrap_or(0));
    let beat = facts.time("beat_at").map_or_else(String::new, |at| format!("; last heartbeat {}", look.when(at)));
    if kind == CauseKind::SilentWorker {
        return format!("worker {place} has it{since} and is silent{beat}; {}", taken_back(facts));
    }
    let said = facts.time("reported_at").map(|at| format!("; it said {}{}", progress(facts), look.when(at)));
    let how = match (kind, &said) {
        (CauseKind::Cancelling, _) => "was told to cancel it",
        (_, Some(_)) => "runs it",
        _ => "runs it, or is about to begin it",
    };
    format!("worker {place} {how}; it has it{since}{beat}{}", said.unwrap_or_default())
}

/// What a job said of itself.
fn progress(facts: Facts<'_>) -> String {
    let percent = facts.float("fraction").map(|fraction| format!("{}%", results::percent(fraction)));
    let stage = facts.text("stage").map(|stage| format!("`{}`", one_line(stage)));
    let parts: Vec<String> = percent.into_iter().chain(stage).collect();
    if parts.is_empty() { "something at ".to_owned() } else { format!("{} at ", parts.join(", ")) }
}

fn taken_back(facts: Facts<'_>) -> &'static str {
    if facts.number("workers") == Some(0) {
        "no worker lives that could take it back"
    } else {
        "another takes it back within about two seconds"
    }
}

fn waits(kind: CauseKind, facts: Facts<'_>, look: &Look<'_>) -> String {
    let when = facts.time("run_at").map_or_else(String::new, |at| look.when(at));
    let attempts = facts.number("attempts").unwrap_or(0);
    let most = facts.number("max_attempts").unwrap_or(0);
    let error = facts.text("error").map_or_else(String::new, |error| format!(": {}", one_line(error)));
    let after = if attempts > 0 { format!("; attempt {attempts} of {most} failed{error}") } else { String::new() };
    if kind == CauseKind::Due {
        if !facts.texts("signals").is_empty() {
            return "its wait is over, and it is ready as soon as a worker looks".to_owned();
        }
        return format!("it was due at {when}, and is ready as soon as a worker looks{after}");
    }
    let what = if attempts > 0 { "is tried again" } else { "is due" };
    let schedule = facts.text("schedule").zip(facts.time("overlapped_since"));
    let silent = schedule.map_or_else(String::new, |(name, since)| {
        format!("; its schedule {name} has skipped its ticks since {}, because this job is not over", look.when(since))
    });
    format!("it {what} at {when}{after}{silent}")
}

/// So many signals are named.
const MOST_NAMED: usize = 10;

fn parked(facts: Facts<'_>, look: &Look<'_>) -> String {
    if facts.each("parents").next().is_some() {
        return node(facts, look);
    }
    let children = facts.each("children").map(|child| {
        let of = |name| child.text(name).unwrap_or_default();
        (of("wait"), format!("its child `{}` (job {}, {})", one_line(of("name")), of("id"), of("state")))
    });
    let children: Vec<(&str, String)> = children.collect();
    let is_signal = |name: &&str| children.iter().all(|(wait, _)| wait != name);
    let said = |name: &str| match name.strip_suffix(" (join)") {
        Some(map) => format!("the jobs of its map `{}`", one_line(map)),
        None => format!("the signal `{}`", one_line(name)),
    };
    let signals = facts.texts("signals").into_iter().filter(is_signal).map(said);
    let waits: Vec<String> = children.iter().map(|(_, child)| child.clone()).chain(signals).collect();
    let others = (waits.len() > MOST_NAMED).then(|| format!("one of {} others", waits.len() - MOST_NAMED));
    let named: Vec<String> = waits.into_iter().take(MOST_NAMED).chain(others).collect();
    let since = facts.time("since").map_or_else(String::new, |since| format!(" since {}", look.when(since)));
    let until = facts.time("run_at").map_or_else(String::new, |until| format!(", until {}", look.when(until)));
    if named.is_empty() {
        return format!("it waits for its turn among the jobs that a durable job has mapped{since}: so many of them as it said run now");
    }
    let mapped = facts.texts("mapped").iter().take(MOST_NAMED).fold(String::new(), |all, said| all + "; " + &one_line(said));
    format!("it waits for {}{since}{until}{mapped}", named.join(" or "))
}

/// A node of a flow, and those that it waits for.
fn node(facts: Facts<'_>, look: &Look<'_>) -> String {
    let all = facts.each("parents").count();
    let mut names: Vec<String> = facts.each("parents").take(MOST_NAMED).map(parent).collect();
    names.extend((all > MOST_NAMED).then(|| format!("{} others", all - MOST_NAMED)));
    format!("it waits for {}{}", names.join(" and "), look.since(facts, "since"))
}

fn parent(facts: Facts<'_>) -> String {
    let (name, id) = (one_line(facts.text("name").unwrap_or_default()), facts.text("id").unwrap_or_default());
    let how = match (facts.text("state"), facts.is("on_dead")) {
        (Some("dead"), false) => "is dead: it goes on once that is requeued and completes".to_owned(),
        (state, false) => format!("is {}", state.unwrap_or("gone")),
        (state, true) => format!("is {}: it runs only if that dies", state.unwrap_or("gone")),
    };
    format!("the node `{name}` (job {id}), which {how}")
}

fn keyed(kind: CauseKind, facts: Facts<'_>, look: &Look<'_>) -> String {
    let between = match facts.number("between") {
        Some(0) | None => String::new(),
        Some(_) => format!(", and {} more stand before it", facts.counted("between")),
    };
    if kind == CauseKind::KeyFree {
        return format!("no job of its ordering key is under way; a worker lets the first go on within about a second{between}");
    }
    let head = facts.text("head").unwrap_or_default();
    let error = facts.text("head_error").map_or_else(String::new, |error| format!(": {}", one_line(error)));
    let at = |name| facts.time(name).map_or_else(String::new, |at| format!(" at {}", look.when(at)));
    let how = match facts.text("head_state") {
        Some("dead") => format!("is dead{error}; its key goes on once it is requeued or discarded"),
        Some("running") => format!("runs on worker `{}`", facts.text("head_worker").unwrap_or("that is gone")),
        Some("scheduled") if facts.number("head_attempts") > Some(0) => format!("is tried again{}{error}", at("head_run_at")),
        Some("scheduled") => format!("is due{}", at("head_run_at")),
        Some(state) => format!("is {state}"),
        None => "goes first".to_owned(),
    };
    format!("job {head} of its ordering key goes first, and {how}{between}")
}

fn unserved(kind: CauseKind, facts: Facts<'_>, look: &Look<'_>) -> String {
    let last = facts.of("last").map_or_else(String::new, |last| {
        let until = last.time("until").map_or_else(String::new, |until| format!(" since {}", look.when(until)));
        format!("; `{}` on {}, which did, is silent{until}", last.text("name").unwrap_or_default(), last.text("host").unwrap_or_default())
    });
    if kind == CauseKind::NoWorker {
        return format!("no worker lives{last}");
    }
    let (queue, count) = (name(look, "queue"), |of| facts.number(of).unwrap_or(0));
    let versions: Vec<String> =
        facts.0.get("versions").and_then(|known| known.as_array()).into_iter().flatten().map(ToString::to_string).collect();
    let how = if count("draining") > 0 {
        format!("all that serve the queue {queue} and {} are shutting down", versioned(look))
    } else if count("of_queue") == 0 {
        match count("workers") {
            1 => format!("the only worker that lives does not serve the queue {queue}"),
            workers => format!("none of the {workers} workers that live serves the queue {queue}"),
        }
    } else if count("of_type") > 0 {
        format!("no worker serves both the queue {queue} and {}", versioned(look))
    } else if versions.is_empty() {
        match count("of_queue") {
            1 => format!("the only worker that serves the queue {queue} does not know {}", versioned(look)),
            workers => format!("none of the {workers} workers that serve the queue {queue} knows {}", versioned(look)),
        }
    } else {
        format!("no worker of the queue {queue} knows {}; they know the versions {}", versioned(look), versions.join(", "))
    };
    format!("{how}{last}")
}

fn paused(facts: Facts<'_>, look: &Look<'_>) -> String {
    let what = match (facts.text("queue"), facts.text("job_type")) {
        (None, None) => "everything is".to_owned(),
        (Some(queue), None) => format!("the queue {queue} is"),
        (None, Some(job_type)) => format!("the type {job_type} is"),
        (Some(queue), Some(job_type)) => format!("the type {job_type} in the queue {queue} is"),
    };
    let reason = facts.text("reason").map_or_else(String::new, |reason| format!(": {}", one_line(reason)));
    format!("{what} paused by {}{}{reason}", facts.text("by").unwrap_or_default(), look.since(facts, "since"))
}

fn limited(kind: CauseKind, facts: Facts<'_>, look: &Look<'_>) -> String {
    let name = facts.text("limit").unwrap_or_default();
    if kind == CauseKind::LimitUnknown {
        let workers: Vec<String> = facts.each("awaits").map(|worker| format!("`{}`", worker.text("name").unwrap_or_default())).collect();
        return format!("nothing begins under the limit {name} before these workers know what it covers: {}", workers.join(", "));
    }
    let key = if facts.is("keyed") {
        facts.text("key").map_or(" for its key".to_owned(), |key| format!(" for the key `{}`", one_line(key)))
    } else {
        String::new()
    };
    let who = match (facts.is("by_operator"), facts.text("reason")) {
        (true, Some(reason)) => {
            format!("; set by {}{}: {}", facts.text("set_by").unwrap_or_default(), look.since(facts, "since"), one_line(reason))
        }
        (true, None) => format!("; set by {}{}", facts.text("set_by").unwrap_or_default(), look.since(facts, "since")),
        (false, _) => "; set by code".to_owned(),
    };
    match (facts.float("next_ms"), facts.number("concurrency")) {
        (Some(next), _) => format!("the rate of the limit {name} is used up{key}: the next may begin in {}{who}", ms(next)),
        (None, most) => {
            let most = most.map_or_else(String::new, |most| format!(" of {most}"));
            format!("the limit {name} has no room{key}: {}{most} are taken{who}", facts.number("used").unwrap_or(0))
        }
    }
}

fn suspect(facts: Facts<'_>) -> String {
    let crashes = facts.number("crashes").unwrap_or(0);
    let how = if facts.is("alone") { "alone, once a process has nothing else to do, or after about 15s" } else { "apart from other jobs" };
    let ahead = match facts.number("ahead") {
        Some(0) | None => String::new(),
        Some(ahead) => format!("; {ahead} such jobs stand before it"),
    };
    format!("its process ended during {crashes} of its attempts, so it is tried {how}; at the third it is dead{ahead}")
}

fn in_turn(kind: CauseKind, facts: Facts<'_>, look: &Look<'_>) -> String {
    let held = match facts.number("held") {
        Some(held) if held > 0 => {
            format!("; its workers have {held} jobs of the queue {}{}", name(look, "queue"), look.since(facts, "held_since"))
        }
        _ => String::new(),
    };
    match kind {
        CauseKind::Starved => {
            format!("{} jobs of higher priority are ready in the queue {}{held}", facts.counted("higher"), name(look, "queue"))
        }
        CauseKind::Behind if facts.is("in_line") => {
            format!("{} ready jobs of its fair key stand before it, and keys take turns{held}", facts.counted("ahead"))
        }
        CauseKind::Behind => {
            let pace = facts.float("per_s").map_or_else(
                || "none of its kind has completed in the last minute".to_owned(),
                |per_s| format!("about {per_s:.1} of its kind complete a second"),
            );
            let wait = facts.float("wait_ms").map_or_else(String::new, |wait| format!(", so it begins in about {}", ms(wait)));
            format!("{} ready jobs stand before it; {pace}{wait}{held}", facts.counted("ahead"))
        }
        _ => format!("it is next, and begins when its workers have a slot free{held}"),
    }
}

fn old(facts: Facts<'_>, look: &Look<'_>) -> String {
    format!(
        "beside that, {} keeps vacuum from cleaning up: claims go on as fast as before, but looks for jobs that were committed late, counts and lists \
         read {} dead rows",
        sessions(facts, look),
        facts.number("dead").unwrap_or(0)
    )
}

fn nothing(facts: Facts<'_>, look: &Look<'_>) -> String {
    if look.state != Some(JobState::Ready) {
        return "nothing is known to be in its way".to_owned();
    }
    let waited = facts.float("waited_ms").unwrap_or(0.0);
    if waited > 10_000.0 {
        return format!(
            "it is ready, and nothing is known to be in its way, though it was enqueued {} ago: see the logs of its workers",
            ms(waited)
        );
    }
    "it is ready, and nothing is in its way: a worker should take it within about a second".to_owned()
}

/// What others have written, cut and on one line.
fn one_line(text: &str) -> String {
    let mut line: String = text.chars().take(200).map(|letter| if letter == '\n' || letter == '\t' { ' ' } else { letter }).collect();
    if text.chars().nth(200).is_some() {
        line.push('…');
    }
    line
}
