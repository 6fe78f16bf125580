//! The loops of a worker, in one list: each goes on until the worker is asked to end, and is watched.

macro_rules! loops {
    ($($which:ident = $name:literal, $what:literal;)*) => {
        /// One of them.
        #[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "a meter is behind a feature"))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Loop {
            $(#[doc = $what] $which),*
        }

        impl Loop {
            /// As it is told of.
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
    Claim = "claim", "Finds jobs, and makes due ones ready.";
    Settle = "settle", "Writes verdicts.";
    Heartbeat = "heartbeat", "Announces the worker, and beats.";
    Fence = "fence", "Drops everything when the right to it is lost.";
    Transactional = "transactional jobs", "Claims, runs and settles jobs of transactional types; there are several.";
    Housekeeping = "housekeeping", "Takes back the jobs of silent workers, and tells handlers of cancelled jobs.";
    Schedules = "schedules", "Enqueues what the clock is to.";
    Prune = "prune", "Removes what is kept no longer, and makes the partitions of days to come.";
    Notifications = "notifications", "Hears of jobs and pauses.";
    Keys = "keys", "Lets the next job of an ordering key go on.";
    Expiry = "expiry", "Ends jobs that nobody began in time.";
    Tell = "tell", "Tells those who wait that jobs are over.";
    Reports = "reports", "Writes progress and checkpoints.";
    Journal = "journal", "Writes steps of durable jobs.";
    Logs = "logs", "Writes what handlers have logged.";
    History = "history", "Writes what came of attempts.";
    Meter = "meter", "Tells figures to a meter of OpenTelemetry.";
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
            let watched =
                all.matches(&format!("watch(Loop::{which:?}, ")).count() + all.matches(&format!("watched(Loop::{which:?}, ")).count();
            assert_eq!((watched, all.matches(&format!("Loop::{which:?}")).count()), (1, 1), "{which:?}");
        }
    }

    /// What a worker starts besides has an end of its own.
    const ENDING: [&str; 6] = [
        "tokio::spawn(tell_ready(",
        "engine.handle().spawn(running.stop(",
        "tokio::spawn(transact.stop(",
        "tokio::spawn(farewell.say(",
        "self.context.handlers.spawn(async move {", // an attempt
        "loops.spawn_on(engine.watched(",           // a loop
    ];

    #[test]
    fn whatever_else_a_worker_starts_has_an_end_of_its_own() {
        let mut seen = BTreeSet::new();
        let starts = |path: &Path| {
            let text = path.to_string_lossy().into_owned();
            (text.contains("/src/worker") && !text.ends_with("tried.rs")) || path.ends_with("run/transact.rs")
        };
        for (path, text) in all_sources().into_iter().filter(|(path, _)| starts(path)) {
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code.filter(|line| line.contains("spawn(") || line.contains("spawn_on(")) {
                let known = ENDING.iter().find(|known| line.contains(*known));
                seen.insert(*known.unwrap_or_else(|| panic!("{}: watch it, or say here why it ends: {line}", path.display())));
            }
        }
        assert_eq!(seen.len(), ENDING.len(), "{seen:?}");
    }
}
