//! Tests where the server stores its data, and when it refuses to start.

use std::{fs, path::Path};

use queue_worker::embedded::{Embedded, EmbeddedError, EmbeddedOptions};

use super::user::{User, eventually, gone, scratch_folder, sql};

#[test]
#[ignore = "deep"]
fn without_a_setting_the_folder_depends_on_the_environment_and_the_version() {
    let base = scratch_folder("default");
    let mut command = User::command(Path::new(""));
    command.env("QUEUE_PG_DATA", base.join("told"));
    let user = User::spawn(command).unwrap();
    let major = sql(&user.url, "select current_setting('server_version_num')::int / 10000");
    user.kill();
    gone(&base.join("told"));
    assert!(base.join("told/data/PG_VERSION").exists());
    let mut command = User::command(Path::new(""));
    command.env_remove("QUEUE_PG_DATA").env("XDG_DATA_HOME", base.join("xdg"));
    User::spawn(command).unwrap().kill();
    gone(&base.join("xdg"));
    assert!(base.join("xdg/queue-worker").join(&major).join("data/PG_VERSION").exists());
    fs::remove_dir_all(&base).unwrap();
}

#[test]
#[ignore = "deep"]
fn a_foreign_folder_is_left_alone() {
    let folder = scratch_folder("foreign");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("thesis.tex"), "years of work").unwrap();
    let options = EmbeddedOptions { folder: Some(folder.clone()), ephemeral: true, ..EmbeddedOptions::default() };
    assert!(matches!(Embedded::start(options), Err(EmbeddedError::ForeignFolder { .. })));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
#[ignore = "deep"]
fn a_cluster_of_another_version_is_refused() {
    let folder = scratch_folder("version");
    fs::create_dir_all(folder.join("data")).unwrap();
    fs::write(folder.join("data/PG_VERSION"), "14\n").unwrap();
    fs::write(folder.join("start.lock"), "").unwrap();
    let options = EmbeddedOptions { folder: Some(folder.clone()), ..EmbeddedOptions::default() };
    let error = Embedded::start(options).unwrap_err();
    assert!(matches!(error, EmbeddedError::WrongVersion { data: 14, .. }), "{error}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
#[ignore = "deep"]
fn a_server_that_refuses_its_settings_names_the_reason() {
    for ephemeral in [false, true] {
        let folder = scratch_folder("settings");
        let settings = vec![("work_mem".to_owned(), "plenty".to_owned())];
        let options = EmbeddedOptions { folder: Some(folder.clone()), settings, ephemeral, ..EmbeddedOptions::default() };
        let error = Embedded::start(options).unwrap_err();
        assert!(matches!(error, EmbeddedError::Ended { .. }), "{error}");
        assert!(error.to_string().contains("invalid value for parameter \"work_mem\""), "{error}");
        eventually("it is removed", || !ephemeral || !folder.exists());
        let _ = fs::remove_dir_all(&folder);
    }
}
