//! Descriptions of causes, as sentences for people.

use super::{
    CauseKind,
    facts::{Facts, WhyContext, format_ms, one_line},
};
use crate::{connect::KEY_HOLD, define::JobState, results};

/// Returns a one-line description of a cause, or `None` if this release does not know the cause.
pub(super) fn describe(kind: CauseKind, facts: Facts<'_>, context: &WhyContext<'_>) -> Option<String> {
    let description = match kind {
        CauseKind::NoSuchJob => absent(facts, context),
        CauseKind::TableLocked => table_locked(facts, context),
        CauseKind::Completed | CauseKind::Cancelled | CauseKind::Expired | CauseKind::Dead => finished(kind, facts, context),
        CauseKind::Running | CauseKind::Cancelling | CauseKind::SilentWorker => running(kind, facts, context),
        CauseKind::Parked => parked(facts, context),
        CauseKind::Scheduled | CauseKind::Due => scheduled(kind, facts, context),
        CauseKind::Blocked | CauseKind::KeyFree => blocked(kind, facts, context),
        CauseKind::PastExpiry => "it was not started in time: it will not run, and a worker is about to expire it".to_owned(),
        CauseKind::NoWorker | CauseKind::Unserved => unserved(kind, facts, context),
        CauseKind::Paused => paused(facts, context),
        CauseKind::LimitUnknown | CauseKind::Limited => limited(kind, facts, context),
        CauseKind::LimitLocked => {
            let name = facts.text("limit").unwrap_or_default();
            format!("no job starts under the limit {name}: {} has it locked", sessions(facts, context))
        }
        CauseKind::Locked => format!("claims skip it: {} has its row locked", sessions(facts, context)),
        CauseKind::LeaseLocked if facts.is_true("silent") => {
            format!("its worker is silent, and it cannot be recovered: {} has its lease locked", sessions(facts, context))
        }
        CauseKind::LeaseLocked => format!("its outcome cannot be written: {} has its lease locked", sessions(facts, context)),
        CauseKind::Suspect => suspect(facts),
        CauseKind::Starved | CauseKind::Behind | CauseKind::WorkersBusy => queued(kind, facts, context),
        CauseKind::OldSnapshot => old_snapshot(facts, context),
        CauseKind::Nothing => nothing(facts, context),
        CauseKind::Other => return None,
    };
    Some(description)
}

fn job_text<'a>(context: &'a WhyContext<'_>, of: &str) -> &'a str {
    context.job_facts.and_then(|job| job.text(of)).unwrap_or_default()
}

/// Formats the job type with its version, such as `the type mail in version 2`.
fn versioned_type(context: &WhyContext<'_>) -> String {
    let version = context.job_facts.and_then(|job| job.number("version")).unwrap_or(1);
    let more = if version > 1 { format!(" in version {version}") } else { String::new() };
    format!("the type {}{more}", job_text(context, "job_type"))
}

/// Describes every session listed in `facts`. Marks sessions whose details are hidden from the calling role.
fn sessions(facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    let described: Vec<String> = facts.objects("sessions").map(|session| one_session(session, context)).collect();
    if described.is_empty() { "a session that has since ended".to_owned() } else { described.join(" and ") }
}

fn one_session(session: Facts<'_>, context: &WhyContext<'_>) -> String {
    let since = session.time("since").map_or_else(String::new, |since| format!(", in a transaction since {}", context.format_time(since)));
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
    let unseen = if session.is_true("visible") { "" } else { ", more details not visible to your role" };
    let blockers: Vec<String> = session.blockers().iter().map(ToString::to_string).collect();
    let waits = if blockers.is_empty() { String::new() } else { format!(", which waits for session {}", blockers.join(", ")) };
    let own = if session.is_true("own") { "your own session, " } else { "session " };
    format!("{own}{pid} ({}{since}{state}{unseen}){waits}", of.join(" of "))
}

fn absent(facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    let id = context.job;
    if facts.is_true("future") {
        return format!("there is no job {id}, and this store has not generated such an id yet: it belongs to another store or database");
    }
    let Some(given) = facts.time("given_at") else {
        return format!("there is no job {id}: no store generates such an id");
    };
    let given = context.format_time(given);
    if facts.objects("sessions").next().is_some() {
        return format!(
            "there is no committed job {id}; its id is from {given}, and {} had begun before and has enqueued jobs",
            sessions(facts, context)
        );
    }
    match (facts.time("given_at"), facts.time("oldest_at")) {
        (Some(at), Some(oldest)) if at < oldest => {
            format!("there is no job {id}; its id is from {given}, and all jobs here are newer: it was deleted after the retention")
        }
        _ => format!(
            "there is no job {id}; its id is from {given}: its enqueue was rolled back or in another store, or it was discarded, or completed as \
             a type that keeps no record"
        ),
    }
}

fn table_locked(facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    format!(
        "jobs can be neither read nor claimed: {} holds an exclusive lock on tables of the store, or waits for one",
        sessions(facts, context)
    )
}

fn finished(kind: CauseKind, facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    let when = facts.time("finished_at").map_or_else(String::new, |at| format!(" at {}", context.format_time(at)));
    let attempts = facts.number("attempts").unwrap_or(0);
    let why = facts.last_error().map_or_else(String::new, |error| format!(": {}", one_line(error)));
    match kind {
        CauseKind::Completed => {
            let took = facts.float("ran_ms").map_or_else(String::new, |took| format!(", in {}", format_ms(took)));
            format!("it completed{when}, in attempt {attempts}{took}")
        }
        CauseKind::Cancelled if attempts == 0 => format!("it was cancelled{when}, before it had started"),
        CauseKind::Cancelled if attempts == 1 => format!("it was cancelled{when}, after 1 attempt{why}"),
        CauseKind::Cancelled => format!("it was cancelled{when}, after {attempts} attempts{why}"),
        CauseKind::Expired => format!("it expired{when}: no attempt started in time"),
        _ => format!("it has been dead since{}, after attempt {attempts}{why}", when.trim_start_matches(" at")),
    }
}

fn running(kind: CauseKind, facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    let since = facts.time("claimed_at").map_or_else(String::new, |at| format!(" since {}", context.format_time(at)));
    let Some(name) = facts.text("name") else {
        return format!("the worker that had it{since} no longer exists; {}", recovery(facts));
    };
    let place = format!("`{name}` ({}, process {})", facts.text("host").unwrap_or_default(), facts.number("pid").unwrap_or(0));
    let beat = facts.time("beat_at").map_or_else(String::new, |at| format!("; last heartbeat {}", context.format_time(at)));
    if kind == CauseKind::SilentWorker {
        return format!("worker {place} has had it{since} and is silent{beat}; {}", recovery(facts));
    }
    let reported = facts.time("reported_at").map(|at| format!("; it reported {}{}", progress(facts), context.format_time(at)));
    let how = match (kind, &reported) {
        (CauseKind::Cancelling, _) => "is cancelling it",
        (_, Some(_)) => "runs it",
        _ => "runs it, or is about to start it",
    };
    format!("worker {place} {how}; it has had it{since}{beat}{}", reported.unwrap_or_default())
}

/// Formats the progress reported by a job, such as `40% at `. The caller appends the time. Returns `progress at ` if the job has reported
/// neither a fraction nor a stage.
fn progress(facts: Facts<'_>) -> String {
    let percent = facts.float("fraction").map(|fraction| format!("{}%", results::percent(fraction)));
    let stage = facts.text("stage").map(|stage| format!("`{}`", one_line(stage)));
    let parts: Vec<String> = percent.into_iter().chain(stage).collect();
    if parts.is_empty() { "progress at ".to_owned() } else { format!("{} at ", parts.join(", ")) }
}

fn recovery(facts: Facts<'_>) -> &'static str {
    if facts.number("workers") == Some(0) {
        "no worker is alive to recover it"
    } else {
        "another worker recovers it within about two seconds"
    }
}

fn scheduled(kind: CauseKind, facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    let when = facts.time("run_at").map_or_else(String::new, |at| context.format_time(at));
    let attempts = facts.number("attempts").unwrap_or(0);
    let most = facts.number("max_attempts").unwrap_or(0);
    let error = facts.text("error").map_or_else(String::new, |error| format!(": {}", one_line(error)));
    let after = if attempts > 0 { format!("; attempt {attempts} of {most} failed{error}") } else { String::new() };
    if kind == CauseKind::Due {
        if !facts.strings("signals").is_empty() {
            return "its wait has ended, and it becomes ready at the next poll of a worker".to_owned();
        }
        return format!("it was due at {when}, and becomes ready at the next poll of a worker{after}");
    }
    if let Some(name) = facts.text("sleep") {
        return format!("it sleeps until {when} (`{}` in its journal; `run-now` does not shorten a sleep)", one_line(name));
    }
    if context.holds_key() {
        return "it holds its ordering key while a tenant moves to this store; it is cancelled once the old store has no job of the key"
            .to_owned();
    }
    let what = if attempts > 0 { "is retried" } else { "is due" };
    let schedule = facts.text("schedule").zip(facts.time("overlapped_since"));
    let silent = schedule.map_or_else(String::new, |(name, since)| {
        format!("; its schedule {name} has skipped its ticks since {}, because this job has not finished", context.format_time(since))
    });
    format!("it {what} at {when}{after}{silent}")
}

/// Maximum number of signals, children or nodes that a description lists.
const MAX_LISTED: usize = 10;

fn parked(facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    if facts.objects("parents").next().is_some() {
        return node(facts, context);
    }
    let children = facts.objects("children").map(|child| {
        let of = |name| child.text(name).unwrap_or_default();
        (of("wait"), format!("its child `{}` (job {}, {})", one_line(of("name")), of("id"), of("state")))
    });
    let children: Vec<(&str, String)> = children.collect();
    let is_signal = |name: &&str| children.iter().all(|(wait, _)| wait != name);
    let describe_signal = |name: &str| match name.strip_suffix(" (join)") {
        Some(map) => format!("the jobs of its map `{}`", one_line(map)),
        None => format!("the signal `{}`", one_line(name)),
    };
    let signals = facts.strings("signals").into_iter().filter(is_signal).map(describe_signal);
    let waits: Vec<String> = children.iter().map(|(_, child)| child.clone()).chain(signals).collect();
    let others = (waits.len() > MAX_LISTED).then(|| format!("one of {} others", waits.len() - MAX_LISTED));
    let named: Vec<String> = waits.into_iter().take(MAX_LISTED).chain(others).collect();
    let since = facts.time("since").map_or_else(String::new, |since| format!(" since {}", context.format_time(since)));
    let until = facts.time("run_at").map_or_else(String::new, |until| format!(", until {}", context.format_time(until)));
    if named.is_empty() {
        return format!("it waits for its turn in the map of a durable job{since}: the concurrency of the map is used up");
    }
    let mapped = facts.strings("mapped").iter().take(MAX_LISTED).fold(String::new(), |all, text| all + "; " + &one_line(text));
    format!("it waits for {}{since}{until}{mapped}", named.join(" or "))
}

/// Describes the flow nodes for which the job is waiting.
fn node(facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    let all = facts.objects("parents").count();
    let mut names: Vec<String> = facts.objects("parents").take(MAX_LISTED).map(parent).collect();
    names.extend((all > MAX_LISTED).then(|| format!("{} others", all - MAX_LISTED)));
    format!("it waits for {}{}", names.join(" and "), context.format_since(facts, "since"))
}

fn parent(facts: Facts<'_>) -> String {
    let (name, id) = (one_line(facts.text("name").unwrap_or_default()), facts.text("id").unwrap_or_default());
    let how = match (facts.text("state"), facts.is_true("on_dead")) {
        (Some("dead"), false) => "is dead: this node continues once it is requeued and completes".to_owned(),
        (state, false) => format!("is {}", state.unwrap_or("gone")),
        (state, true) => format!("is {}: this node runs only if it dies", state.unwrap_or("gone")),
    };
    format!("the node `{name}` (job {id}), which {how}")
}

fn blocked(kind: CauseKind, facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    let between = match facts.number("between") {
        Some(0) | None => String::new(),
        Some(_) => format!(", and {} more are queued before it", facts.format_count("between")),
    };
    if kind == CauseKind::KeyFree {
        return format!("no job of its ordering key is active; a worker releases the first within about a second{between}");
    }
    if facts.text("head_type") == Some(KEY_HOLD) {
        return format!("a tenant is moving to this store, and jobs of this ordering key in the old store go first{between}");
    }
    let head = facts.text("head").unwrap_or_default();
    let error = facts.text("head_error").map_or_else(String::new, |error| format!(": {}", one_line(error)));
    let at = |name| facts.time(name).map_or_else(String::new, |at| format!(" at {}", context.format_time(at)));
    let how = match facts.text("head_state") {
        Some("dead") => format!("is dead{error}; the key continues once it is requeued or discarded"),
        Some("running") => format!("runs on worker `{}`", facts.text("head_worker").unwrap_or("(gone)")),
        Some("scheduled") if facts.number("head_attempts") > Some(0) => format!("is retried{}{error}", at("head_run_at")),
        Some("scheduled") => format!("is due{}", at("head_run_at")),
        Some(state) => format!("is {state}"),
        None => "goes first".to_owned(),
    };
    format!("job {head} of its ordering key goes first, and {how}{between}")
}

fn unserved(kind: CauseKind, facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    let last = facts.object("last").map_or_else(String::new, |last| {
        let until = last.time("until").map_or_else(String::new, |until| format!(" since {}", context.format_time(until)));
        format!(
            "; `{}` on {}, which served it, is silent{until}",
            last.text("name").unwrap_or_default(),
            last.text("host").unwrap_or_default()
        )
    });
    if kind == CauseKind::NoWorker {
        return format!("no worker is alive{last}");
    }
    let (queue, count) = (job_text(context, "queue"), |of| facts.number(of).unwrap_or(0));
    let versions: Vec<String> =
        facts.0.get("versions").and_then(|known| known.as_array()).into_iter().flatten().map(ToString::to_string).collect();
    let how = if count("draining") > 0 {
        format!("all workers that serve the queue {queue} and {} are shutting down", versioned_type(context))
    } else if count("of_queue") == 0 {
        match count("workers") {
            1 => format!("the only live worker does not serve the queue {queue}"),
            workers => format!("none of the {workers} live workers serves the queue {queue}"),
        }
    } else if count("of_type") > 0 {
        format!("no worker serves both the queue {queue} and {}", versioned_type(context))
    } else if versions.is_empty() {
        match count("of_queue") {
            1 => format!("the only worker that serves the queue {queue} does not know {}", versioned_type(context)),
            workers => format!("none of the {workers} workers that serve the queue {queue} knows {}", versioned_type(context)),
        }
    } else {
        format!("no worker of the queue {queue} knows {}; known versions: {}", versioned_type(context), versions.join(", "))
    };
    format!("{how}{last}")
}

fn paused(facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    let what = match (facts.text("queue"), facts.text("job_type")) {
        (None, None) => "everything is".to_owned(),
        (Some(queue), None) => format!("the queue {queue} is"),
        (None, Some(job_type)) => format!("the type {job_type} is"),
        (Some(queue), Some(job_type)) => format!("the type {job_type} in the queue {queue} is"),
    };
    let reason = facts.text("reason").map_or_else(String::new, |reason| format!(": {}", one_line(reason)));
    format!("{what} paused by {}{}{reason}", facts.text("by").unwrap_or_default(), context.format_since(facts, "since"))
}

fn limited(kind: CauseKind, facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    let name = facts.text("limit").unwrap_or_default();
    if kind == CauseKind::LimitUnknown {
        let workers: Vec<String> = facts.objects("awaits").map(|worker| format!("`{}`", worker.text("name").unwrap_or_default())).collect();
        return format!("no job starts under the limit {name} until these workers know what it covers: {}", workers.join(", "));
    }
    let key = if facts.is_true("keyed") {
        facts.text("key").map_or(" for its key".to_owned(), |key| format!(" for the key `{}`", one_line(key)))
    } else {
        String::new()
    };
    let who = match (facts.is_true("by_operator"), facts.text("reason")) {
        (true, Some(reason)) => {
            format!("; set by {}{}: {}", facts.text("set_by").unwrap_or_default(), context.format_since(facts, "since"), one_line(reason))
        }
        (true, None) => format!("; set by {}{}", facts.text("set_by").unwrap_or_default(), context.format_since(facts, "since")),
        (false, _) => "; set by code".to_owned(),
    };
    match (facts.float("next_ms"), facts.number("concurrency")) {
        (Some(next), _) => format!("the rate of the limit {name} is used up{key}: the next job may start in {}{who}", format_ms(next)),
        (None, most) => {
            let most = most.map_or_else(String::new, |most| format!(" of {most}"));
            format!("the limit {name} has no free permit{key}: {}{most} are taken{who}", facts.number("used").unwrap_or(0))
        }
    }
}

fn suspect(facts: Facts<'_>) -> String {
    let crashes = facts.number("crashes").unwrap_or(0);
    let how = if facts.is_true("alone") { "alone, once a process is idle, or after about 15s" } else { "apart from other jobs" };
    let ahead = match facts.number("ahead") {
        Some(0) | None => String::new(),
        Some(ahead) => format!("; {ahead} such jobs are queued before it"),
    };
    format!("its process crashed during {crashes} of its attempts, so it is retried {how}; after the third it is dead{ahead}")
}

fn queued(kind: CauseKind, facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    let held = match facts.number("held") {
        Some(held) if held > 0 => {
            format!(
                "; its workers have {held} jobs of the queue {}{}",
                job_text(context, "queue"),
                context.format_since(facts, "held_since")
            )
        }
        _ => String::new(),
    };
    match kind {
        CauseKind::Starved => {
            let (count, s, are) = facts.format_subject("higher");
            format!("{count} job{s} of higher priority {are} ready in the queue {}{held}", job_text(context, "queue"))
        }
        CauseKind::Behind if facts.is_true("is_fair") => {
            let (count, s, are) = facts.format_subject("ahead");
            format!("{count} ready job{s} of its fairness key {are} queued before it, and keys take turns{held}")
        }
        CauseKind::Behind => {
            let pace = facts.float("per_s").map_or_else(
                || "none of its kind has completed in the last minute".to_owned(),
                |per_s| format!("about {per_s:.1} of its kind complete per second"),
            );
            let wait = facts.float("wait_ms").map_or_else(String::new, |wait| format!(", so it starts in about {}", format_ms(wait)));
            let (count, s, are) = facts.format_subject("ahead");
            format!("{count} ready job{s} {are} queued before it; {pace}{wait}{held}")
        }
        _ => format!("it is next, and starts when its workers have a free slot{held}"),
    }
}

fn old_snapshot(facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    format!(
        "in addition, {} prevents vacuum from cleaning up: claims stay as fast as before, but scans for late commits, counts and lists \
         read {} dead rows",
        sessions(facts, context),
        facts.number("dead").unwrap_or(0)
    )
}

fn nothing(facts: Facts<'_>, context: &WhyContext<'_>) -> String {
    if context.state != Some(JobState::Ready) {
        return "nothing is known to block it".to_owned();
    }
    let waited = facts.float("waited_ms").unwrap_or(0.0);
    if waited > 10_000.0 {
        return format!(
            "it is ready, and nothing is known to block it, although it was enqueued {} ago: see the logs of its workers",
            format_ms(waited)
        );
    }
    "it is ready, and nothing blocks it: a worker should claim it within about a second".to_owned()
}
