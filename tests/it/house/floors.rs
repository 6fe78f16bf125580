//! Checks the rooms (top-level modules) and floors (layers) drawn in ARCHITECTURE.md. Imports only go down, and rooms of one floor do not
//! import each other. Within a room, the imports of files form no cycle.

use std::collections::{BTreeMap, BTreeSet};

use super::{assert_none, code, files, imports::Tree, read};

/// Crates with floors, and the first word of each crate's drawing.
const DRAWN: [(&str, &str); 2] = [("queue-core", "api"), ("queue-worker", "main")];

/// Modules outside of the floors: the crate root, and modules that only the macro's expansion or `cargo guards` uses.
const BESIDE: [&str; 3] = ["lib", "private", "mutants"];

/// Returns the floor of each room, counted from the top. Each line of the drawing lists the rooms of a floor before a description.
fn floors(begins: &str) -> BTreeMap<String, usize> {
    let text = read("ARCHITECTURE.md");
    let drawn = |block: &&str| block.lines().next().is_some_and(|line| line.split_whitespace().next() == Some(begins));
    let drawing = text.split("```text\n").skip(1).find(drawn).unwrap_or_else(|| panic!("ARCHITECTURE.md draws no `{begins}`"));
    let lines = drawing.lines().take_while(|line| *line != "```").map(|line| line.split("  ").next().unwrap_or_default());
    lines.enumerate().flat_map(|(floor, names)| names.split(' ').map(move |name| (name.to_owned(), floor)).collect::<Vec<_>>()).collect()
}

fn tree(member: &str) -> Tree {
    let src = format!("{member}/src/");
    let found = files(&src, "rs").into_iter().filter(|(path, _)| !path.ends_with("/tests.rs"));
    Tree::new(found.map(|(path, text)| (path.strip_prefix(&src).unwrap().to_owned(), code(&text))).collect())
}

#[test]
fn imports_go_down_only() {
    let mut faults = Vec::new();
    for (member, begins) in DRAWN {
        let (floors, tree) = (floors(begins), tree(member));
        let room = |file: &str| file.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
        let (mut met, mut seen) = (BTreeSet::new(), 0);
        for file in tree.files().filter(|file| !BESIDE.contains(&room(file).as_str())) {
            let here = room(file);
            let Some(floor) = floors.get(&here) else {
                faults.push(format!("{member}: ARCHITECTURE.md knows no floor for `{here}`"));
                continue;
            };
            met.insert(here.clone());
            // Only `schema/store.rs` may import `mutants`, through which `cargo guards` replaces statements.
            let allowed = |path: &[String]| path[0] == here || (file == "schema/store.rs" && path[0] == "mutants");
            for path in tree.paths(file).iter().filter(|path| !allowed(path)) {
                seen += 1;
                match floors.get(&path[0]) {
                    Some(other) if other > floor => {}
                    Some(other) if other == floor => {
                        faults.push(format!("{member}: {file} imports `{}`, of its own floor", path.join("::")));
                    }
                    Some(_) => faults.push(format!("{member}: {file} imports `{}`, which stands above it", path.join("::"))),
                    None => faults.push(format!("{member}: {file} imports `crate::{}`: say from which room", path.join("::"))),
                }
            }
        }
        let unknown: Vec<&String> = floors.keys().filter(|name| !met.contains(*name)).collect();
        faults.extend(unknown.into_iter().map(|name| format!("{member}: ARCHITECTURE.md draws `{name}`, which is not there")));
        assert!(met.len() >= 9 && seen > 50, "{member}: only {met:?} were checked, with {seen} imports");
    }
    assert_none(&faults, "imports go down only");
}

#[test]
fn no_two_files_of_a_room_import_each_other() {
    let mut faults = Vec::new();
    let mut seen = 0;
    for (member, _) in DRAWN {
        let tree = tree(member);
        let needs: BTreeMap<&str, BTreeSet<String>> = tree.files().map(|file| (file, tree.needs(file))).collect();
        seen += needs.values().map(BTreeSet::len).sum::<usize>();
        let mut reported = BTreeSet::new();
        for file in tree.files().filter(|file| *file != "lib.rs") {
            // The transitive imports of a file must not contain the file itself.
            let mut reached = BTreeMap::from([(file.to_owned(), String::new())]);
            let mut left = vec![file.to_owned()];
            while let Some(next) = left.pop() {
                for other in needs.get(next.as_str()).into_iter().flatten() {
                    if other == file && reported.insert(BTreeSet::from([file.to_owned(), next.clone()])) {
                        let mut way = vec![next.clone()];
                        while let Some(before) = reached.get(way.last().unwrap()).filter(|before| !before.is_empty()) {
                            way.push(before.clone());
                        }
                        way.reverse();
                        faults.push(format!("{member}: {} -> {file}", way.join(" -> ")));
                    }
                    if !reached.contains_key(other) {
                        reached.insert(other.clone(), next.clone());
                        left.push(other.clone());
                    }
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} imports were resolved");
    assert_none(&faults, "of two files that need each other, give what both need a file of its own");
}

#[test]
fn no_file_reaches_past_its_room_with_super() {
    let mut faults = Vec::new();
    for (member, _) in DRAWN {
        for (path, text) in files(&format!("{member}/src"), "rs") {
            let (inside, text) = (path.strip_prefix(&format!("{member}/src/")).unwrap().to_owned(), code(&text));
            if text.contains("super::super::") || (!inside.contains('/') || inside.ends_with("/mod.rs")) && text.contains("super::") {
                faults.push(format!("{path} reaches out of its room with `super::`: say `crate::`"));
            }
        }
    }
    assert_none(&faults, "`super` is the room");
}
