//! Tests the embedded server through its public API. The users of the server are separate processes of this test binary, so that the tests
//! can kill them.
#![cfg(target_os = "linux")]

mod refusals;
mod root;
mod unnamed;
mod user;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use self::user::{User, eventually, gone, kill, postmaster, processes, remove, scratch_folder, scripts, sql, try_sql};

#[test]
#[ignore = "deep"]
fn a_server_starts_is_joined_stops_and_keeps_its_data() {
    let folder = scratch_folder("life");
    let first = User::start(&folder);
    assert!(!first.attached);
    sql(&first.url, "create table kept as select 42 as n");
    let second = User::start(&folder);
    assert!(second.attached);
    assert_eq!(second.url, first.url);
    first.leave();
    assert_eq!(sql(&second.url, "select n from kept"), "42", "the second user keeps it running");
    second.leave();
    gone(&folder);
    let third = User::start(&folder);
    assert!(!third.attached);
    assert_eq!(sql(&third.url, "select n from kept"), "42");
    assert_eq!(sql(&third.url, "show fsync"), "on");
    assert_eq!(sql(&third.url, "show listen_addresses"), "", "a socket only");
    third.leave();
    remove(&folder);
}

#[test]
#[ignore = "deep"]
fn eight_racing_starters_make_one_server() {
    let folder = scratch_folder("race");
    for round in 0..2 {
        let starters: Vec<_> = (0..8)
            .map(|_| {
                let folder = folder.clone();
                thread::spawn(move || User::start(&folder))
            })
            .collect();
        let users: Vec<User> = starters.into_iter().map(|starter| starter.join().unwrap()).collect();
        assert_eq!(users.iter().filter(|user| !user.attached).count(), 1, "round {round}");
        assert_eq!(scripts(&folder).len(), 2, "one script and its watcher");
        for user in users {
            assert_eq!(sql(&user.url, "select 1"), "1");
            user.kill();
        }
        gone(&folder);
    }
    remove(&folder);
}

#[test]
#[ignore = "deep"]
fn a_user_that_arrives_while_the_server_stops_gets_a_server() {
    let folder = scratch_folder("turn");
    let mut fresh = 0;
    let mut user = User::start(&folder);
    for round in 0..6 {
        let leaver = thread::spawn(move || user.kill());
        thread::sleep(Duration::from_millis(round * 4));
        user = User::start(&folder);
        leaver.join().unwrap();
        assert_eq!(sql(&user.url, "select 1"), "1", "round {round}");
        thread::sleep(Duration::from_millis(30));
        assert_eq!(sql(&user.url, "select 1"), "1", "round {round}, later");
        fresh += i32::from(!user.attached);
    }
    assert!(fresh > 0, "no process met a stopping server");
    user.leave();
    remove(&folder);
}

#[test]
#[ignore = "deep"]
fn a_killed_user_leaves_nothing_running() {
    let folder = scratch_folder("killed");
    let user = User::start(&folder);
    user.kill();
    gone(&folder);
    remove(&folder);
}

#[test]
#[ignore = "deep"]
fn a_starter_killed_at_any_moment_leaves_a_folder_that_starts() {
    let folder = scratch_folder("interrupted");
    for round in 0..6 {
        let mut starter = User::command(&folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(round * 100));
        starter.kill().unwrap();
        let _ = starter.wait();
        if round % 3 == 2 {
            let user = User::start(&folder);
            assert_eq!(sql(&user.url, "select 1"), "1", "round {round}");
            user.kill();
            eventually("it stopped", || processes(&folder).is_empty());
            fs::remove_dir_all(&folder).unwrap();
        }
    }
}

#[test]
#[ignore = "deep"]
fn f34_a_killed_postmaster_is_started_again_for_its_users() {
    let folder = scratch_folder("postmaster");
    let user = User::start(&folder);
    sql(&user.url, "create table kept as select 42 as n");
    let first = postmaster(&folder);
    kill(first);
    eventually("there is a new one", || try_sql(&user.url, "select 1").is_ok());
    assert_ne!(postmaster(&folder), first);
    let second = User::start(&folder);
    assert!(second.attached);
    assert_eq!(sql(&second.url, "select n from kept"), "42", "acknowledged work is present");
    user.kill();
    kill(postmaster(&folder));
    let third = User::start(&folder);
    assert_eq!(sql(&third.url, "select n from kept"), "42", "a postmaster killed just before a start is no obstacle");
    second.kill();
    third.kill();
    remove(&folder);
}

#[test]
#[ignore = "deep"]
fn killed_scripts_are_replaced_at_the_next_start() {
    let folder = scratch_folder("scripts");
    let mut first = User::start(&folder);
    sql(&first.url, "create table kept as select 42 as n");
    // Kill either the watcher only, or all processes including the server.
    for which in ["watcher", "all"] {
        let mut doomed = scripts(&folder);
        assert_eq!(doomed.len(), 2);
        match which {
            "watcher" => doomed = vec![doomed[1]],
            _ => doomed.push(postmaster(&folder)),
        }
        doomed.into_iter().for_each(kill);
        let next = User::start(&folder);
        assert_eq!(sql(&next.url, "select n from kept"), "42", "{which}");
        first.kill();
        assert_eq!(sql(&next.url, "select n from kept"), "42", "{which}");
        next.kill();
        gone(&folder);
        first = User::start(&folder);
    }
    first.kill();
    remove(&folder);
}

#[test]
#[ignore = "deep"]
fn a_stale_pid_file_that_names_a_living_process_is_no_obstacle() {
    let folder = scratch_folder("stale");
    User::start(&folder).kill();
    gone(&folder);
    let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
    let data = folder.join("data");
    let text = format!("{}\n{}\n1700000000\n5432\n{}\n\n  1 1\nready   \n", stranger.id(), data.display(), folder.display());
    fs::write(data.join("postmaster.pid"), text).unwrap();
    User::start(&folder).kill();
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger was left alone");
    stranger.kill().unwrap();
    let _ = stranger.wait();
    remove(&folder);
}

#[test]
#[ignore = "deep"]
fn an_ephemeral_folder_goes_with_its_last_user() {
    let folder = scratch_folder("ephemeral");
    for round in 0..2 {
        let mut command = User::command(&folder);
        command.env("TEST_USER_EPHEMERAL", "1");
        let user = User::spawn(command).unwrap();
        assert_eq!(sql(&user.url, "show fsync"), "off");
        user.kill();
        // The first round does not wait. The next server then starts while the folder of the first server is being removed.
        if round == 1 {
            eventually("it is removed", || !folder.exists());
        }
    }
    // The process that removes the folder ends shortly after the folder has been removed.
    eventually("no process of it is left", || processes(&folder).is_empty());
}

#[test]
#[ignore = "deep"]
fn a_long_or_strange_path_gets_a_short_socket() {
    let parent = scratch_folder("long");
    for name in ["x".repeat(200), "a b,c\"d+é%\nbreak".to_owned()] {
        let folder = parent.join(name);
        let user = User::start(&folder);
        assert_eq!(sql(&user.url, "select 1"), "1");
        let second = User::start(&folder);
        assert_eq!(second.url, user.url);
        let socket = PathBuf::from(user.url.split_once("host=").unwrap().1);
        assert!(socket.exists() && !socket.starts_with(&folder), "{}", user.url);
        user.kill();
        second.kill();
        gone(&folder);
        eventually("its folder is removed", || !socket.exists());
    }
    fs::remove_dir_all(&parent).unwrap();
}

#[test]
#[ignore = "deep"]
fn no_file_of_the_user_stays_open() {
    let (folder, lock) = (scratch_folder("descriptors"), scratch_folder("descriptors-lock"));
    let mut command = Command::new("bash");
    command.args(["-c", "exec 7>\"$1\" 23>\"$1\"; flock 23; lock=$1; shift; exec \"$@\"", "bash"]).arg(&lock);
    command.arg(format!("/proc/{}/exe", std::process::id())).args(user::AS_USER);
    command.env("TEST_USER_FOLDER", &folder).env("SECRET_TOKEN", "swordfish");
    let user = User::spawn(command).unwrap();
    let keeper = User::start(&folder);
    user.leave();
    let taken = Command::new("flock").arg("-n").arg(&lock).arg("true").status().unwrap();
    assert!(taken.success(), "the lock of the first user is not free");
    for (pid, line) in processes(&folder).into_iter().filter(|(pid, _)| *pid != keeper.process.id()) {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&environment).contains("swordfish"), "{line}");
        assert_ne!(group(pid), group(std::process::id()), "Ctrl-C would hit {line}");
    }
    keeper.kill();
    remove(&folder);
    fs::remove_file(lock).unwrap();
}

fn group(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    after_name.split_whitespace().nth(2).unwrap().to_owned()
}

#[test]
#[ignore = "deep"]
fn a_script_that_gets_a_signal_stops_the_server_cleanly() {
    let folder = scratch_folder("terminated");
    let user = User::start(&folder);
    let script = scripts(&folder)[0];
    assert!(Command::new("kill").arg(script.to_string()).status().unwrap().success());
    eventually("it stopped", || !folder.join("data/postmaster.pid").exists() && !Path::new("/proc").join(script.to_string()).exists());
    let next = User::start(&folder);
    assert!(!next.attached);
    next.kill();
    assert_eq!(sql(&user.url, "select 1"), "1", "the first user's place still counts");
    user.kill();
    remove(&folder);
}
