//! Tests that the command-line reference `docs/CLI.md` and the settings page `docs/SETTINGS.md` match the parser. With
//! `QUEUE_WRITE_DOCS=1`, the test of `docs/CLI.md` writes the file.

use std::{fmt::Write as _, fs, path::Path};

use clap::{Arg, Command, CommandFactory as _};

use super::args::Args;

const INTRODUCTION: &str = "# The command line

All commands of a worker binary, which is yours: for `queue-worker list` read `worker list` or `cargo run -- list`. [OPERATIONS](OPERATIONS.md)
describes them by task, and `--help` of a command has the same text. This page is written from the parser, by
`QUEUE_WRITE_DOCS=1 cargo test -p queue-worker --all-features reference`.

The commands `dashboard` and `top`, and the options `--health` and `--dashboard`, require the feature of that name in `queue-worker`
(`dashboard` for both of its own; `top` is on by default). [DASHBOARD](DASHBOARD.md#start-it) lists the keys of the settings file for the dashboard.
";

#[test]
fn the_reference_of_the_command_line_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/CLI.md");
    let all = Args::command();
    let mut text = INTRODUCTION.to_owned();
    text.push_str("\n## Settings of all commands\n");
    describe_arguments(&mut text, &all);
    if let Some(manual) = all.get_after_long_help() {
        let _ = write!(text, "\n```text\n{}\n```\n", manual.to_string().trim_end());
    }
    describe_subcommands(&mut text, &all, "");
    if std::env::var_os("QUEUE_WRITE_DOCS").is_some() {
        fs::write(&path, &text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(page == text, "docs/CLI.md is out of date; run this test with QUEUE_WRITE_DOCS=1");
}

/// Appends a section for each visible subcommand of `command`. `parents` is the path of `command`, such as `limits `.
fn describe_subcommands(text: &mut String, command: &Command, parents: &str) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let path = format!("{parents}{}", sub.get_name());
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = write!(text, "\n## {path}\n\n{about}.\n", about = about.trim_end_matches('.'));
        describe_arguments(text, sub);
        if let Some(examples) = sub.get_after_long_help() {
            let _ = write!(text, "\n```text\n{}\n```\n", examples.to_string().trim_end());
        }
        describe_subcommands(text, sub, &format!("{path} "));
    }
}

/// Appends a table of the command's arguments, with the environment variable and the help text of each.
fn describe_arguments(text: &mut String, command: &Command) {
    let mut arguments = command.get_arguments().filter(|arg| !arg.is_hide_set()).peekable();
    if arguments.peek().is_none() {
        return;
    }
    text.push_str("\n| argument | variable | |\n|---|---|---|\n");
    for arg in arguments {
        let variable = arg.get_env().map(|name| format!("`{}`", name.display())).unwrap_or_default();
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|").replace('\n', " ");
        let _ = writeln!(text, "| `{}` | {variable} | {help} |", form(arg).replace('|', "\\|"));
    }
}

/// Formats an argument as written on the command line, such as `ID`, `--queue QUEUE` or `-y, --yes`.
fn form(arg: &Arg) -> String {
    let names = [arg.get_short().map(|short| format!("-{short}")), arg.get_long().map(|long| format!("--{long}"))];
    let values: Vec<&str> = match arg.get_value_names() {
        Some(names) if arg.is_positional() || arg.get_action().takes_values() => names.iter().map(clap::builder::Str::as_str).collect(),
        _ => Vec::new(),
    };
    let names = names.into_iter().flatten().collect::<Vec<_>>().join(", ");
    [names.as_str(), &values.join(" ")].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns the text of the page `name` in `docs`.
fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_page_of_settings_has_the_options_keys_and_defaults_of_the_parser() {
    let page = page("SETTINGS.md");
    let rows: Vec<Vec<&str>> =
        page.lines().filter(|line| line.starts_with("| `")).map(|line| line.split('|').map(str::trim).collect()).collect();
    let plain = |text: &str| text.replace(['`', ' '], "");
    let all = Args::command();
    let of = |path: &[&str]| path.iter().fold(&all, |command, name| command.find_subcommand(name).unwrap_or_else(|| panic!("{name}")));
    let mut faults = Vec::new();
    let mut checked = 0;
    for arg in [of(&[]), of(&["run"]), of(&["stores", "run"])].into_iter().flat_map(Command::get_arguments) {
        let (Some(variable), Some(option)) = (arg.get_env().and_then(|name| name.to_str()), arg.get_long()) else { continue };
        if variable.starts_with("QUEUE_DASHBOARD") {
            continue;
        }
        checked += 1;
        let Some([_, _, shown_option, key, _, default, _]) =
            rows.iter().find(|row| row.len() == 7 && row[1] == format!("`{variable}`")).map(Vec::as_slice)
        else {
            faults.push(format!("{variable} has no row"));
            continue;
        };
        if shown_option.split(',').next() != Some(&format!("`--{option}`")) {
            faults.push(format!("{variable}: {shown_option} is --{option}"));
        }
        // The id of an argument is the name of its field, which is also its key in the settings file.
        if !["", "`[stores.databases]`"].contains(key) && *key != format!("`{}`", arg.get_id()) {
            faults.push(format!("{variable}: {key} is {}", arg.get_id()));
        }
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let in_help = help.split_once("efault: ").map(|(_, rest)| rest.split([')', ';', ',']).next().unwrap_or(rest));
        let in_help = in_help.map(|text| text.split(". ").next().unwrap_or(text).trim_end_matches('.'));
        if let Some(in_help) = in_help
            && !plain(default).starts_with(&plain(in_help))
        {
            faults.push(format!("{variable}: the default is `{default}` on the page and `{in_help}` in the help"));
        }
    }
    assert!(checked > 30, "only {checked} settings");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
