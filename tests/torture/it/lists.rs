//! The list of all guards (`cargo guards`), held against the files: one that fits no longer would be removed by nobody.

use torture::guards::statements;

#[test]
fn every_guard_in_the_list_stands_in_its_file_once() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["queue-worker/sql", "queue-core/sql", "queue-core/migrations"].map(|folder| root.join(folder));
    for statement in statements() {
        let text = folders.iter().find_map(|folder| std::fs::read_to_string(folder.join(statement.file)).ok()).unwrap();
        for guard in statement.guards {
            assert_eq!(text.matches(guard.from).count(), 1, "{}: {}", statement.file, guard.what);
            assert_ne!(guard.from, guard.to, "{}: {}", statement.file, guard.what);
        }
    }
}

#[test]
fn every_statement_that_writes_has_its_guards_listed() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let listed: Vec<&str> = statements().map(|statement| statement.file).collect();
    for folder in ["queue-core/sql", "queue-worker/sql", "queue-core/migrations"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let code: String = text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
            let writes = ["insert into", "delete from", "update queue", "for update", "queue.insert_job(", "queue.meet_lane("];
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(
                listed.contains(&name) || !writes.iter().any(|word| code.contains(word)),
                "{name} writes, and none of its guards is listed"
            );
        }
    }
}
