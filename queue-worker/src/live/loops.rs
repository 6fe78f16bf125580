//! The supervised loops of a worker. Each runs until shutdown is requested.

macro_rules! loops {
    ($($which:ident = $name:literal, $what:literal;)*) => {
        /// A supervised loop.
        #[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "a meter is behind a feature"))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Loop {
            $(#[doc = $what] $which),*
        }

        impl Loop {
            /// Name in log lines and health reports.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$which => $name),*
                }
            }

            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$which),*];
        }
    };
}

loops! {
    Poller = "scout", "Finds out where jobs are, and makes due ones ready.";
    Claimer = "claimer", "Claims jobs of a group of lanes.";
    SlowDowns = "slow_downs", "Tells the store which limits are to wait.";
    Settle = "settle", "Writes verdicts.";
    Heartbeat = "heartbeat", "Announces the worker, and beats.";
    Fence = "fence", "Drops everything when the right to it is lost.";
    Housekeeping = "housekeeping", "Takes back the jobs of silent workers, and tells handlers of cancelled jobs.";
    Schedules = "schedules", "Enqueues what the clock is to.";
    Prune = "prune", "Removes what is kept no longer, and makes the partitions of days to come.";
    Notifications = "notifications", "Hears of jobs and pauses.";
    Keys = "keys", "Lets the next job of an ordering key go on.";
    Expiry = "expiry", "Ends jobs that nobody began in time.";
    Relay = "relay", "Tells what those left to be told who have come over other nodes of a cluster.";
    Tell = "tell", "Tells those who wait that jobs are over.";
    Reports = "reports", "Writes progress and checkpoints.";
    Journal = "journal", "Writes steps of durable jobs.";
    Receive = "receive", "Receives signals for durable jobs.";
    Logs = "logs", "Writes what handlers have logged.";
    History = "history", "Writes what came of attempts.";
    Meter = "meter", "Tells figures to a meter of OpenTelemetry.";
    Stores = "stores", "Looks at stores of a database that have no worker.";
    Ears = "ears", "Listens for all stores of a database.";
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;

    fn sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|ext| ext == "rs") && !path.ends_with("live/loops.rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }

    fn all_sources() -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut found);
        found
    }

    #[test]
    fn each_loop_of_the_list_is_started_once_and_watched() {
        let all: String = all_sources().into_iter().filter(|(path, _)| !path.ends_with("live/vitals.rs")).map(|(_, text)| text).collect();
        let names: BTreeSet<&str> = Loop::ALL.iter().map(|which| which.name()).collect();
        assert_eq!(names.len(), Loop::ALL.len(), "each has a name of its own");
        for which in Loop::ALL {
            let watched: usize = ["supervise", "restart"].iter().map(|how| all.matches(&format!("{how}(Loop::{which:?}, ")).count()).sum();
            assert_eq!((watched, all.matches(&format!("Loop::{which:?}")).count()), (1, 1), "{which:?}");
        }
    }

    /// Everything else that is spawned, where, and why it is not supervised: a part of its line.
    const OTHERS: [(&str, &str); 38] = [
        // It ends by itself.
        ("worker/running.rs", "tokio::spawn(tell_ready("),
        ("worker.rs", "engine.handle().spawn(running.stop("),
        ("worker/running.rs", "tokio::spawn(farewell.say("),
        ("run/slots.rs", "self.context.handlers.spawn(Arc::clone(self).work(slot));"), // a slot, until it finds no job
        ("run/slots/batch.rs", "self.context.handlers.spawn(Arc::clone(self).work(slot));"),
        ("run/slots.rs", "self.context.handlers.spawn(async move {"), // gives back what is late
        ("run/slots/batch.rs", "self.context.handlers.spawn(async move {"), // waits until a batch is ripe
        ("claim/send.rs", "self.in_flight.spawn(async move {"),       // a claim in flight, which its claimer waits for
        ("claim/claimers.rs", "self.tasks.spawn(async move {"),       // a claimer, which is started again should it panic
        ("figures/store.rs", "tokio::spawn(async move { last.lock()"), // one look
        ("keep/tick.rs", "tokio::task::spawn_blocking(search)"),      // one search for ticks
        ("live/heartbeat.rs", "tokio::task::spawn_blocking(move || thread.join())"),
        ("dashboard/door.rs", "tokio::spawn(async move { tokio::time::timeout(LONGEST,"), // one request
        ("dashboard/app.rs", "tokio::spawn(begin)"),                                      // one `begin`
        ("dashboard/counted.rs", "tokio::spawn(async move {"),                            // one look
        ("dashboard/api/many.rs", "tokio::spawn(async move {"),                           // one act, which says how it ended
        ("cli/dashboard.rs", "engine.handle().spawn(async move { dashboard::listen_beside("),
        ("health/listen.rs", "engine.handle().spawn(bind(address))"),
        ("live/hosts.rs", "asking.spawn(async move {"), // a question to one host
        // Ends with the last pool that it redirects; a write detects a move that it misses.
        ("live/follow.rs", "handle.spawn(async move {"),
        ("live/cluster.rs", "engine.handle().spawn(async move { self.go_along()"),
        // Its caller notices when it has ended: there is no answer, or nothing new.
        ("serve.rs", "tasks.spawn(async move {"), // a connection
        ("health/listen.rs", "engine.handle().spawn(async move {"),
        ("cli/dashboard.rs", "engine.handle().spawn(async move { pending.serve("),
        // If it ends early, pages are read from the primary, as logged.
        ("cli/dashboard.rs", "engine.handle().spawn(read_from_standby("),
        ("dashboard/live.rs", "tokio::spawn(async move {"), // looks for watchers; a panic of a look is caught
        ("cli/stores/open.rs", "connecting.spawn(async move {"), // a question to one database
        ("cli/top.rs", "tokio::spawn(follow("),
        ("cli/top.rs", ".spawn(read)"),
        ("live/engine.rs", "engine.handle.spawn(tick("), // health sees that it does not tick
        ("live/signal.rs", ".spawn(move || {"),          // says that it has ended
        // `try` waits for these.
        ("worker/tried.rs", "tokio::spawn(async move {"),
        ("worker/tried.rs", "apart.spawn(attempt("),
        ("stores/tend.rs", "handle().spawn(one.live()"), // begun with anew
        ("stores/mod.rs", "loops.handle().spawn(tend("), // the worker ends with an error
        // These run supervised loops.
        ("live/heartbeat.rs", "hearts.spawn(beats)"),
        ("live/heartbeat.rs", ".spawn(move || runtime.block_on(beats))"),
        ("live/engine.rs", "thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on("),
    ];

    /// Whether this line spawns a task or thread.
    fn starts(line: &str) -> bool {
        let mut rest = line.split("spawn").skip(1);
        !line.trim_start().starts_with("//")
            && !line.contains(" fn spawn(") // a declaration
            && rest.any(|rest| rest.trim_start_matches(|letter: char| letter.is_ascii_lowercase() || letter == '_').starts_with('('))
    }

    #[test]
    fn whatever_else_is_started_anywhere_has_an_end_of_its_own_or_is_seen_to_have_ended() {
        let (mut left, mut watched) = (OTHERS.to_vec(), 0);
        for (path, text) in all_sources().into_iter().filter(|(path, _)| !path.ends_with("tests.rs")) {
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for line in code.lines().filter(|line| starts(line)) {
                if line.contains("self.handle.spawn(self.") {
                    watched += 1;
                    continue;
                }
                let known = left.iter().position(|(file, known)| path.ends_with(file) && line.contains(known));
                // Each entry matches one line, so a second similar line needs an entry of its own.
                left.swap_remove(known.unwrap_or_else(|| panic!("{}: watch it, or say here why not: {line}", path.display())));
            }
        }
        assert!(left.is_empty() && watched == 1, "these are gone: {left:?}, {watched}");
    }
}
