//! Tests the warnings and confirmation prompts of the command line before an operation that may be a mistake.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use queue_core::{JobState, Priority};
use tests::{Act, TestDb};

use super::{CLI, command, enqueue, failed, folder, json, on, text};

/// Creates a folder with a settings file that selects the schema `elsewhere`.
fn folder_with_settings(name: &str, mode: u32) -> PathBuf {
    let folder = folder().join(name);
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("queue.toml");
    fs::write(&file, "schema = 'elsewhere'\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    folder
}

#[tokio::test]
#[ignore = "deep"]
async fn f83_a_settings_file_that_others_may_write_is_ignored_with_a_warning() {
    let db = TestDb::new().await;
    let stats = |folder: &PathBuf, arguments: &[&str]| {
        command(CLI, &[&["stats"], arguments].concat()).current_dir(folder).env("DATABASE_URL", &db.url).output().unwrap()
    };
    let ours = folder_with_settings("ours", 0o600);
    let (code, message) = failed(&stats(&ours, &[]));
    assert!(code == Some(1) && message.contains("elsewhere"), "it is read: {message}");

    let open = folder_with_settings("open", 0o666);
    let passed_over = stats(&open, &[]);
    let message = text(&passed_over.stderr);
    assert_eq!(passed_over.status.code(), Some(0), "{message}");
    assert!(message.contains("queue.toml is ignored: other users may write it") && message.contains("--config"), "{message}");
    let (code, message) = failed(&stats(&open, &["--config", "queue.toml"]));
    assert!(code == Some(1) && message.contains("elsewhere"), "a file named explicitly is read: {message}");

    let theirs = folder_with_settings("theirs", 0o644);
    // Only root can change the owner of a file, so this case is skipped if the test does not run as root.
    if std::os::unix::fs::chown(theirs.join("queue.toml"), Some(4321), Some(4321)).is_ok() {
        let passed_over = stats(&theirs, &[]);
        let message = text(&passed_over.stderr);
        assert!(passed_over.status.success() && message.contains("belongs to another user (uid 4321)"), "{message}");
    }
    let linked = folder().join("linked");
    fs::create_dir_all(&linked).unwrap();
    let link = linked.join("queue.toml");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(ours.join("queue.toml"), &link).unwrap();
    assert_eq!(failed(&stats(&linked, &[])).0, Some(1), "the user's own link is followed");
    if std::os::unix::fs::lchown(&link, Some(4321), Some(4321)).is_ok() {
        let passed_over = stats(&linked, &[]);
        let message = text(&passed_over.stderr);
        assert!(
            passed_over.status.success() && message.contains("belongs to another user (uid 4321)"),
            "the owner of the link counts: {message}"
        );
    }
    let piped = folder().join("piped");
    fs::create_dir_all(&piped).unwrap();
    let _ = fs::remove_file(piped.join("queue.toml"));
    assert!(std::process::Command::new("mkfifo").arg(piped.join("queue.toml")).status().unwrap().success());
    let passed_over = stats(&piped, &[]);
    assert!(
        passed_over.status.success() && text(&passed_over.stderr).contains("it is not a regular file"),
        "it does not wait for a writer"
    );
    db.finish().await;
}

#[tokio::test]
async fn a_misspelt_variable_is_reported() {
    let db = TestDb::new().await;
    let mut stats = command(CLI, &["stats"]);
    stats.envs([("DATABASE_URL", db.url.as_str()), ("QUEUE_CONCURENCY", "5"), ("QUEUE_COLOUR", "red"), ("QUEUE_GRACE", "1s")]);
    stats.envs([("QUEUE_PG_DATA", "/nowhere"), ("QUEUES", "1"), ("QUEUE_SCHEMA", "queue")]);
    let output = stats.output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(message.contains("QUEUE_CONCURENCY is not a setting; did you mean QUEUE_CONCURRENCY?"), "{message}");
    assert!(message.contains("QUEUE_COLOUR is not a setting; `--help`"), "{message}");
    assert_eq!(message.lines().count(), 2, "the others are known, or none of ours: {message}");
    db.finish().await;
}

#[tokio::test]
async fn a_queue_that_does_not_exist_is_reported() {
    let db = TestDb::new().await;
    let job = tests::Do { act: Act::Hang };
    queue_core::Job::enqueue(job, &db.pool).queue("mail").priority(Priority::BACKFILL).await.unwrap();
    for arguments in [
        &["cancel", "--all", "--queue", "mial", "--yes"][..],
        &["requeue", "--all", "--queue", "mial", "--dry-run"],
        &["list", "--queue", "mial"],
        // The capacity is set despite the warning, because jobs may be enqueued into this queue later.
        &["capacity", "mial", "7"],
    ] {
        let output = on(&db, arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {message}");
        assert!(
            message.contains("no job has ever been enqueued into the queue `mial`") && message.contains("did you mean `mail`?"),
            "{message}"
        );
    }
    for arguments in [&["capacity", "mail", "7"][..], &["list", "--queue", "mail"], &["cancel", "--all", "--queue", "mail", "--yes"]] {
        assert_eq!(text(&on(&db, arguments).stderr), "", "{arguments:?}");
    }
    let (code, message) = failed(&on(&db, &["list", "--queue", "no; such\nname"]));
    assert_eq!(
        (code, message.matches("no such").count(), message.contains("warning")),
        (Some(2), 0, false),
        "refused, and not reported: {message}"
    );
    db.finish().await;
}

#[tokio::test]
async fn bulk_operations_show_the_number_of_jobs_and_need_confirmation() {
    let db = TestDb::new().await;
    let waiting = [enqueue(&db, Act::Hang).await, enqueue(&db, Act::Hang).await];
    let (code, message) = failed(&on(&db, &["cancel", "--all"]));
    assert!(code == Some(2) && message.contains("2 jobs would be cancelled") && message.contains("--yes"), "{code:?}: {message}");
    for id in waiting {
        assert_eq!(db.state(id).await, Some(JobState::Ready));
    }
    assert_eq!(json(&db, &["cancel", "--all", "--yes"])["cancelled"], 2);
    let dead = enqueue(&db, Act::Terminal("no way".into())).await;
    db.run_until_idle(db.worker()).await;
    for act in ["requeue", "discard"] {
        let (code, message) = failed(&on(&db, &[act, "--all"]));
        assert!(code == Some(2) && message.contains("1 job would be"), "{act}: {code:?}: {message}");
        assert_eq!(db.state(dead).await, Some(JobState::Dead));
    }
    assert_eq!(json(&db, &["requeue", "--all", "--yes"])["requeued"], 1);
    assert_eq!(json(&db, &["discard", "--all"])["discarded"], 0, "there is nothing to ask for");
    let (code, message) = failed(&on(&db, &["cancel", &dead.to_string(), "--yes"]));
    assert!(code == Some(2) && message.contains("--all"), "{message}");
    db.finish().await;
}

#[test]
#[ignore = "deep"]
fn shell_completions_and_man_pages_have_every_command_under_the_name_of_the_binary() {
    let output = |arguments: &[&str]| {
        let output = command(CLI, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = output(&["completions", shell]);
        assert!(["test-cli", "requeue", "dry-run"].iter().all(|word| script.contains(word)), "{shell}");
    }
    // Only the syntax of the bash script is checked, because other shells may not be installed.
    let checked = std::process::Command::new("bash").args(["-n", "/dev/stdin"]).stdin(std::process::Stdio::piped()).spawn();
    let mut checked = checked.unwrap();
    std::io::Write::write_all(&mut checked.stdin.take().unwrap(), output(&["completions", "bash"]).as_bytes()).unwrap();
    assert!(checked.wait().unwrap().success());
    let page = output(&["man"]);
    assert!(page.contains(".TH test-cli 1") && page.contains("Exit codes"), "{page}");
    let pages = folder().join("pages");
    output(&["man", "--dir", pages.to_str().unwrap()]);
    for name in ["test-cli.1", "test-cli-requeue.1", "test-cli-cron-add.1"] {
        let page = fs::read_to_string(pages.join(name)).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    let (code, message) = failed(&command(CLI, &["man", "--dir", "/dev/null/pages"]).output().unwrap());
    assert!(code == Some(1) && message.contains("/dev/null/pages"), "{message}");
}
