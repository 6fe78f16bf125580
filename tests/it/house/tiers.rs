//! Checks that the reason of every ignored test is a cargo alias that runs the test, or `by hand`. Checks that `tests/README.md` explains
//! every alias, and that `.ci/tier2` lists the commands to run after a change to each tracked file.

use std::{collections::BTreeSet, process::Command};

use super::{assert_none, read, root, sources};

/// Aliases in `.cargo/config.toml` that run ignored tests.
const COMMANDS: [&str; 5] = ["deep", "browser", "ui", "examples", "matrix"];

#[test]
fn every_ignored_test_has_a_command_or_is_run_manually() {
    let profiles = read(".config/nextest.toml");
    let (mut faults, mut seen) = (Vec::new(), 0);
    for (path, text) in sources().filter(|(path, _)| !path.ends_with("house/tiers.rs") && !path.contains("/ui/")) {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let Some(reason) = line.trim().strip_prefix("#[ignore") else { continue };
            seen += 1;
            let reason = reason.trim_start_matches(" = \"").trim_end_matches("\"]");
            let test = lines[number..].iter().find_map(|line| line.split("fn ").nth(1)).unwrap_or_default();
            let name = test.split('(').next().unwrap_or_default();
            let is_by_hand = reason.starts_with("by hand: ") && profiles.contains(&format!("::{name})"));
            if !is_by_hand && !COMMANDS.contains(&reason.split(':').next().unwrap_or_default()) {
                faults.push(format!("{path}:{}: `{name}` is ignored for `{reason}`", number + 1));
            }
        }
    }
    assert!(seen > 200, "only {seen} ignored tests were found");
    assert_none(&faults, "name a command of tests/README.md, or `by hand: ..` and leave it out of the profile `deep`");
}

#[test]
fn every_command_is_defined_and_explained() {
    let (config, page, ci) = (read(".cargo/config.toml"), read("tests/README.md"), read(".ci/run"));
    let aliases = config.lines().take_while(|line| *line != "[env]").filter_map(|line| line.split(" = ").next());
    let missing = |alias: &&str| !alias.is_empty() && !alias.starts_with(['[', '#']) && *alias != "demo";
    let unexplained = aliases.filter(missing).filter(|alias| !page.contains(&format!("| `cargo {alias}")));
    assert_none(&unexplained.map(str::to_owned).collect::<Vec<_>>(), "a row of the table in tests/README.md");
    let unknown = plan().into_iter().map(|(command, _)| command).filter(|command| {
        let defined = config.contains(&format!("\n{command} = ")) && ci.contains(command.as_str());
        command != "none" && !defined
    });
    assert_none(&unknown.collect::<Vec<_>>(), "a command of .ci/tier2 that is no alias, or that .ci/run does not know");
}

#[test]
fn every_file_names_the_commands_that_a_change_of_it_needs() {
    let listed = Command::new("git").args(["ls-files"]).current_dir(root()).output().unwrap();
    let files: BTreeSet<String> = String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect();
    assert!(files.len() > 500, "only {} files", files.len());
    let paths: Vec<String> = plan().into_iter().flat_map(|(_, paths)| paths).collect();
    let covers = |path: &String, file: &String| file == path || file.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('/'));
    let forgotten = files.iter().filter(|file| !paths.iter().any(|path| covers(path, file)));
    assert_none(&forgotten.cloned().collect::<Vec<_>>(), "a line of .ci/tier2");
    let gone = paths.iter().filter(|path| !files.iter().any(|file| covers(path, file)));
    assert_none(&gone.cloned().collect::<Vec<_>>(), "named in .ci/tier2, and no file");
}

/// Returns the lines of `.ci/tier2`, each as a command and the paths whose changes require the command.
fn plan() -> Vec<(String, Vec<String>)> {
    let text = read(".ci/tier2");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let split = lines.map(|line| line.split_once(": ").unwrap_or_else(|| panic!("no command in `{line}`")));
    split.map(|(command, paths)| (command.to_owned(), paths.split(' ').map(str::to_owned).collect())).collect()
}
