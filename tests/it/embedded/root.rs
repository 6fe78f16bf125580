//! Tests the embedded server when root starts it. PostgreSQL refuses to run as root, so the server runs as another user. These tests
//! require root.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
};

use tests::skipped;

use super::user::{User, copy_of_ourselves, eventually, gone, postmaster, processes, remove, root, scratch_folder, sql};

#[test]
#[ignore = "deep"]
fn root_does_not_follow_links_that_the_servers_user_left() {
    if !root() {
        return skipped("links that the server's user left", "not run as root");
    }
    let (folder, precious) = (scratch_folder("links"), scratch_folder("precious"));
    User::start(&folder).kill();
    gone(&folder);
    for name in ["supervise.sh", "supervise.new", "postgres.log", "start.lock", "alive.lock", "users"] {
        fs::write(&precious, "root's").unwrap();
        fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).unwrap();
        let _ = fs::remove_file(folder.join(name));
        symlink(&precious, folder.join(name)).unwrap();
        if let Ok(user) = User::spawn(User::command(&folder)) {
            user.kill();
            eventually("it is gone", || processes(&folder).is_empty());
        }
        let metadata = fs::metadata(&precious).unwrap();
        assert_eq!((metadata.len(), metadata.uid()), (6, 0), "{name}");
        let _ = fs::remove_file(folder.join(name));
    }
    User::start(&folder).kill();
    remove(&folder);
    fs::remove_file(precious).unwrap();
}

#[test]
#[ignore = "deep"]
fn a_plain_user_can_do_the_same_and_shares_the_server_with_no_other() {
    if !root() {
        return skipped("another user's server", "not run as root");
    }
    let (folder, copy) = (scratch_folder("plain"), copy_of_ourselves());
    // This user id has no account. `initdb` requires a user name, so it runs in a user namespace that provides one.
    let uid = 12345;
    let first = User::spawn(User::command_as(uid, &copy, &folder)).unwrap();
    assert_eq!(sql(&first.url, "select 1"), "1");
    let second = User::spawn(User::command_as(uid, &copy, &folder)).unwrap();
    assert!(second.attached);
    let other = User::spawn(User::command_as(uid + 1, &copy, &folder)).err().unwrap();
    fs::remove_file(copy).unwrap();
    assert!(other.contains(&format!("belongs to user id {uid}")), "{other}");
    first.kill();
    second.kill();
    gone(&folder);
    let root = User::start(&folder);
    assert_eq!(sql(&root.url, "select 1"), "1");
    root.kill();
    remove(&folder);
}

#[test]
#[ignore = "deep"]
fn root_behind_a_closed_folder_uses_a_user_namespace() {
    if !root() {
        return skipped("a server behind a folder that only root may enter", "not run as root");
    }
    let parent = scratch_folder("closed");
    fs::create_dir(&parent).unwrap();
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o700)).unwrap();
    let folder = parent.join("cluster");
    for ephemeral in [false, true] {
        let mut command = User::command(&folder);
        if ephemeral {
            command.env("TEST_USER_EPHEMERAL", "1");
        }
        let user = match User::spawn(command) {
            Ok(user) => user,
            // Some containers forbid user namespaces, and the error must report this restriction.
            Err(error) => {
                assert!(error.contains("and user namespaces are not allowed"), "{error}");
                return skipped("a server behind a folder that only root may enter", "no user namespaces here");
            }
        };
        assert_eq!(sql(&user.url, "select 1"), "1");
        assert!(User::start(&folder).attached);
        let map = fs::read_to_string(format!("/proc/{}/uid_map", postmaster(&folder))).unwrap();
        assert_eq!(map.split_whitespace().skip(1).collect::<Vec<_>>(), ["0", "1"], "{map}");
        user.kill();
        eventually("it is gone", || processes(&folder).is_empty());
    }
    eventually("it is removed", || !folder.exists());
    fs::remove_dir(&parent).unwrap();
}
