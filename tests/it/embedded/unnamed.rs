//! Tests the CLI without a configured database. The CLI then uses the embedded server.

use std::{process::Command, time::Instant};

use queue_worker::embedded::{Embedded, EmbeddedOptions};
use sqlx::{Connection as _, PgConnection};
use tests::WorkerProcess;

use super::user::{eventually, remove, scratch_folder};

#[test]
#[ignore = "deep"]
fn a_worker_on_an_embedded_server_reports_it_unless_configured() {
    let folder = scratch_folder("unnamed");
    let place = folder.to_str().unwrap();
    for (arguments, warns) in [(&["run"][..], true), (&["run", "--embedded"], false)] {
        let since = Instant::now();
        let settings = [("QUEUE_PG_DATA", place), ("QUEUE_LOG", "info"), ("NO_COLOR", "1")];
        let mut worker = WorkerProcess::start_with(env!("CARGO_BIN_EXE_test-cli"), "", arguments, &settings);
        let find_line = |what: &str| worker.log_since(since).into_iter().find(|line| line.contains(what));
        eventually("it has started", || find_line("worker started").is_some());
        let warning = find_line("only programs on this machine can see");
        assert_eq!(warning.is_some(), warns, "{arguments:?}");
        if let Some(warning) = warning {
            assert!(
                ["WARN", place, "url=\"postgresql://", "schema=\"queue\"", "set DATABASE_URL"].iter().all(|part| warning.contains(part)),
                "{warning}"
            );
        }
        worker.signal("TERM");
        assert_eq!(worker.wait(), Some(0));
    }
    remove(&folder);
}

/// The user may not know where the embedded server stores its data, so the error must name the folder.
#[tokio::test]
#[ignore = "deep"]
async fn an_embedded_store_that_this_release_cannot_use_is_reported_with_its_folder() {
    let folder = scratch_folder("foreign");
    let server = Embedded::start(EmbeddedOptions { folder: Some(folder.clone()), ..EmbeddedOptions::default() }).unwrap();
    let mut connection = PgConnection::connect(server.url()).await.unwrap();
    sqlx::raw_sql("create schema queue; create table queue.migration (number int)").execute(&mut connection).await.unwrap();
    for arguments in [&["migrate"][..], &["stats"]] {
        let command =
            Command::new(env!("CARGO_BIN_EXE_test-cli")).args(arguments).env("QUEUE_PG_DATA", &folder).env_remove("DATABASE_URL").output();
        let message = String::from_utf8(command.unwrap().stderr).unwrap();
        let expected = ["error: the schema `queue` holds no store", "help: ", folder.to_str().unwrap(), "QUEUE_PG_DATA"];
        assert!(expected.iter().all(|part| message.contains(part)), "{arguments:?}: {message}");
    }
    connection.close().await.unwrap();
    drop(server);
    remove(&folder);
}
