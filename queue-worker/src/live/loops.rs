//! Supervised loops of a worker. Each loop runs until a shutdown is requested.

macro_rules! loops {
    ($($which:ident = $name:literal, $what:literal;)*) => {
        /// Supervised loop of a worker.
        #[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "only used by the feature `otel`"))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Loop {
            $(#[doc = $what] $which),*
        }

        impl Loop {
            /// Returns the loop's name in log lines and health reports.
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
    Poller = "poller", "Probes lanes for jobs and promotes due ones.";
    Claimer = "claimer", "Claims jobs of one group of lanes.";
    SlowDowns = "slow_downs", "Stores slow-downs of limits.";
    Settle = "settle", "Writes verdicts.";
    Heartbeat = "heartbeat", "Registers the worker and extends its lease.";
    Fence = "fence", "Abandons all jobs once the lease is lost.";
    Housekeeping = "housekeeping", "Recovers jobs of expired workers and cancels handlers of cancelled jobs.";
    Schedules = "schedules", "Fires schedules.";
    Prune = "prune", "Prunes expired rows and creates partitions for the next days.";
    Notifications = "notifications", "Listens for notifications of the store.";
    Keys = "keys", "Unblocks the next job of each ordering key.";
    Expiry = "expiry", "Ends jobs that have expired before they started.";
    Relay = "relay", "Relays notifications from other nodes of a cluster.";
    Waiters = "waiters", "Notifies producers that wait for finished jobs.";
    Reports = "reports", "Writes progress and checkpoints.";
    Journal = "journal", "Writes steps of durable jobs.";
    Receive = "receive", "Receives signals for durable jobs.";
    Logs = "logs", "Writes log lines of handlers.";
    History = "history", "Writes attempt outcomes to the history.";
    Meter = "meter", "Exports metrics to OpenTelemetry.";
    Stores = "stores", "Polls stores of a database that have no worker.";
    SharedNotifications = "shared_notifications", "Listens for notifications of all stores of a database.";
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
    fn each_loop_is_started_once_and_supervised() {
        let all: String =
            all_sources().into_iter().filter(|(path, _)| !path.ends_with("live/loop_health.rs")).map(|(_, text)| text).collect();
        let names: BTreeSet<&str> = Loop::ALL.iter().map(|which| which.name()).collect();
        assert_eq!(names.len(), Loop::ALL.len(), "names are unique");
        for which in Loop::ALL {
            let watched: usize = ["supervise", "restart"].iter().map(|how| all.matches(&format!("{how}(Loop::{which:?}, ")).count()).sum();
            assert_eq!((watched, all.matches(&format!("Loop::{which:?}")).count()), (1, 1), "{which:?}");
        }
    }

    /// Tasks and threads that are not supervised, as pairs of a source file and a part of the spawning line. The comments in the list
    /// explain why the tasks need no supervision.
    const OTHERS: [(&str, &str); 38] = [
        // The following tasks end by themselves.
        ("worker/running.rs", "tokio::spawn(call_ready_hooks("),
        ("worker.rs", "engine.handle().spawn(running.stop("),
        ("worker/running.rs", "tokio::spawn(drain_notice.run("),
        ("run/slots.rs", "self.context.handlers.spawn(Arc::clone(self).work(slot));"), // a slot task, which ends when no job is left
        ("run/slots/batch.rs", "self.context.handlers.spawn(Arc::clone(self).work(slot));"),
        ("run/slots.rs", "self.context.handlers.spawn(async move {"), // releases late jobs
        ("run/slots/batch.rs", "self.context.handlers.spawn(async move {"), // waits until a batch is complete
        ("claim/send.rs", "self.in_flight.spawn(async move {"),       // a claim in flight, which its claimer waits for
        ("claim/claimers.rs", "self.tasks.spawn(async move {"),       // a claimer, which is restarted after a panic
        ("figures/store.rs", "tokio::spawn(async move { last.lock()"), // one query
        ("keep/tick.rs", "tokio::task::spawn_blocking(search)"),      // one search for ticks
        ("live/heartbeat.rs", "tokio::task::spawn_blocking(move || thread.join())"),
        ("dashboard/guard.rs", "tokio::spawn(async move { tokio::time::timeout(REQUEST_TIMEOUT,"), // one request
        ("dashboard/app.rs", "tokio::spawn(begin)"),                                               // one `begin`
        ("dashboard/store_counts.rs", "tokio::spawn(async move {"),                                // one query
        ("dashboard/api/many.rs", "tokio::spawn(async move {"), // one operation, which reports its result
        ("cli/dashboard.rs", "engine.handle().spawn(async move { dashboard::listen_beside("),
        ("health/listen.rs", "engine.handle().spawn(bind(address))"),
        ("live/hosts.rs", "asking.spawn(async move {"), // a query of one host
        // The following tasks end with the last pool that they redirect. If such a task misses a move of the database, the next write
        // detects the move.
        ("live/follow.rs", "handle.spawn(async move {"),
        ("live/cluster.rs", "engine.handle().spawn(async move { self.go_along()"),
        // Callers of the following tasks notice when a task ends, because a response or new data is missing.
        ("serve.rs", "tasks.spawn(async move {"), // a connection
        ("health/listen.rs", "engine.handle().spawn(async move {"),
        ("cli/dashboard.rs", "engine.handle().spawn(async move { pending.serve("),
        // If this task ends early, pages are read from the primary, and a log line reports the end.
        ("cli/dashboard.rs", "engine.handle().spawn(read_from_standby("),
        ("dashboard/live_hub.rs", "tokio::spawn(async move {"), // polls for viewers; a panic is caught
        ("cli/stores/open.rs", "connecting.spawn(async move {"), // a query of one database
        ("cli/top.rs", "tokio::spawn(poll_store("),
        ("cli/top.rs", ".spawn(read)"),
        ("live/engine.rs", "engine.handle.spawn(tick("), // health checks detect its end
        ("live/signal.rs", ".spawn(move || {"),          // reports its end
        // The command `try` waits for the following tasks.
        ("worker/trial.rs", "tokio::spawn(async move {"),
        ("worker/trial.rs", "runtime.spawn(attempt("),
        ("stores/supervisor.rs", "handle().spawn(store_loop.run()"), // restarted by the supervisor
        ("stores/mod.rs", "loops.handle().spawn(supervise("),        // the worker fails if this task ends
        // The following tasks and threads run supervised loops.
        ("live/heartbeat.rs", "shared.spawn(beats)"),
        ("live/heartbeat.rs", ".spawn(move || runtime.block_on(beats))"),
        ("live/engine.rs", "thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on("),
    ];

    /// Returns whether the source line spawns a task or a thread.
    fn starts(line: &str) -> bool {
        let mut rest = line.split("spawn").skip(1);
        !line.trim_start().starts_with("//")
            && !line.contains(" fn spawn(") // a declaration
            && rest.any(|rest| rest.trim_start_matches(|letter: char| letter.is_ascii_lowercase() || letter == '_').starts_with('('))
    }

    #[test]
    fn every_other_spawn_is_listed_with_the_reason_why_it_is_not_supervised() {
        let (mut left, mut watched) = (OTHERS.to_vec(), 0);
        for (path, text) in all_sources().into_iter().filter(|(path, _)| !path.ends_with("tests.rs")) {
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for line in code.lines().filter(|line| starts(line)) {
                if line.contains("self.handle.spawn(self.") {
                    watched += 1;
                    continue;
                }
                let known = left.iter().position(|(file, known)| path.ends_with(file) && line.contains(known));
                // Each entry matches one line only. A second similar line needs a second entry.
                left.swap_remove(
                    known.unwrap_or_else(|| panic!("{}: supervise it, or list it above with a reason: {line}", path.display())),
                );
            }
        }
        assert!(left.is_empty() && watched == 1, "entries without a spawn: {left:?}, {watched} handles");
    }
}
