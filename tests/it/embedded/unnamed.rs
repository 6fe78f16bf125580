//! A worker for which nobody has named a database.

use std::time::Instant;

use tests::WorkerProcess;

use super::user::{eventually, remove, scratch_folder};

#[test]
fn a_worker_on_a_server_of_its_own_says_so_unless_it_was_told_to() {
    let folder = scratch_folder("unnamed");
    let place = folder.to_str().unwrap();
    for (arguments, warns) in [(&["run"][..], true), (&["run", "--embedded"], false)] {
        let since = Instant::now();
        let settings = [("QUEUE_PG_DATA", place), ("QUEUE_LOG", "info"), ("NO_COLOR", "1")];
        let mut worker = WorkerProcess::running(env!("CARGO_BIN_EXE_test-cli"), "", arguments, &settings);
        let says = |what: &str| worker.log_since(since).into_iter().find(|line| line.contains(what));
        eventually("it has started", || says("worker started").is_some());
        let warning = says("nobody elsewhere sees");
        assert_eq!(warning.is_some(), warns, "{arguments:?}");
        if let Some(warning) = warning {
            assert!(["WARN", place, "schema=\"queue\"", "set DATABASE_URL"].iter().all(|part| warning.contains(part)), "{warning}");
        }
        worker.signal("TERM");
        assert_eq!(worker.wait(), Some(0));
    }
    remove(&folder);
}
