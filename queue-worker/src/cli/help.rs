//! `completions` and `man` commands: print shell completions and manual pages.

use std::{fs, path::PathBuf};

use clap::{
    Subcommand,
    builder::StyledStr,
    error::{ContextKind, ContextValue},
};
use clap_complete::Shell;

use super::{print, problem::Problem};
use crate::program;

#[derive(Subcommand)]
pub(super) enum HelpCommand {
    /// Print the completion script of a shell
    #[command(after_long_help = "\
Examples:
  queue-worker completions bash > /etc/bash_completion.d/queue-worker
  queue-worker completions zsh > ~/.zfunc/_queue-worker
  queue-worker completions fish > ~/.config/fish/completions/queue-worker.fish

The script is for the name under which this binary was called.")]
    Completions {
        /// Shell to generate the script for
        shell: Shell,
    },
    /// Print the manual page of the program, or write one page per command
    #[command(after_long_help = "\
Examples:
  queue-worker man | man -l -
  queue-worker man --dir /usr/local/share/man/man1")]
    Man {
        /// Write the pages into this directory, one file per command
        #[arg(long, value_name = "FOLDER")]
        dir: Option<PathBuf>,
    },
}

/// Inserts the program name into the examples of all commands, and lets numeric arguments accept values that begin with `-`.
pub(super) fn with_program_name(command: clap::Command) -> clap::Command {
    let own = |text: &StyledStr| text.to_string().replace("queue-worker", program::name());
    let help = command.get_after_long_help().map(own);
    let command = if let Some(help) = help { command.after_long_help(help) } else { command };
    command.mut_args(with_negatives).mut_subcommands(with_program_name)
}

/// Lets positional arguments accept negative numbers, and numeric options accept values that begin with `-`. Such a value is then reported
/// as invalid instead of as an unknown option.
fn with_negatives(arg: clap::Arg) -> clap::Arg {
    const MEASURES: [&str; 6] = ["N", "DURATION", "RATE", "N/PERIOD|none", "N|none", "ID"];
    let is_measure = arg.get_value_names().is_some_and(|names| names.iter().any(|name| MEASURES.contains(&name.as_str())));
    if arg.is_positional() {
        arg.allow_negative_numbers(true)
    } else if is_measure {
        arg.allow_hyphen_values(true)
    } else {
        arg
    }
}

/// Commands and options that require a Cargo feature, with the feature and whether this binary has it.
const OPTIONAL: [(&str, &str, bool); 4] = [
    ("dashboard", "dashboard", cfg!(feature = "dashboard")),
    ("--dashboard", "dashboard", cfg!(feature = "dashboard")),
    ("--health", "health", cfg!(feature = "health")),
    ("top", "top", cfg!(feature = "top")),
];

/// Replaces clap's tips for an unknown command or option. Clap suggests passing the text as a value after `--`, which is misleading because
/// an unknown option is not a job or queue. For a missing Cargo feature, the tip names the feature.
pub(super) fn with_own_tips(mut error: clap::Error) -> clap::Error {
    let given = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand].into_iter().find_map(|kind| error.get(kind));
    let Some(ContextValue::String(given)) = given else { return error };
    if let Some(tip) = feature_tip(given, &OPTIONAL) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        error.remove(ContextKind::SuggestedSubcommand);
        error.remove(ContextKind::SuggestedArg);
        return error;
    }
    let is_number = given.strip_prefix('-').is_some_and(|given| given.starts_with(|first: char| first.is_ascii_digit()));
    let mut tips = match error.remove(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => tips,
        _ => Vec::new(),
    };
    tips.retain(|tip| !tip.to_string().contains("as a value"));
    if is_number {
        tips.push("a number or a duration must follow its option, as in `--by 5m`".into());
    }
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Returns a tip that explains how to enable the feature that `given` requires. Returns `None` if no feature is missing.
fn feature_tip(given: &str, optional: &[(&str, &str, bool)]) -> Option<String> {
    let (name, feature, _) = optional.iter().find(|(name, _, is_built)| given.split('=').next() == Some(name) && !is_built)?;
    Some(format!("this binary was built without the feature that has `{name}`: `cargo add queue-worker --features {feature}`"))
}

/// Runs `completions` or `man`. `all` is the root command.
pub(super) fn help(all: clap::Command, command: HelpCommand) -> Result<(), Problem> {
    let name = program::name();
    let mut all = all.name(name).bin_name(name);
    match command {
        HelpCommand::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut all, name, &mut text);
            print::text(&text)
        }
        HelpCommand::Man { dir: None } => {
            let mut text = Vec::new();
            clap_mangen::Man::new(all).render(&mut text).map_err(Problem::failed)?;
            print::text(&text)
        }
        HelpCommand::Man { dir: Some(dir) } => fs::create_dir_all(&dir)
            .and_then(|()| clap_mangen::generate_to(all, &dir))
            .map_err(|error| Problem::failed(format!("cannot write the pages to {}: {error}", dir.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::feature_tip;

    #[test]
    fn a_command_of_a_missing_feature_has_a_tip_with_the_feature() {
        let optional = [("dashboard", "dashboard", false), ("--health", "health", false), ("top", "top", true)];
        for (given, feature) in [("dashboard", Some("dashboard")), ("--health=[::]:80", Some("health")), ("top", None), ("dash", None)] {
            let tip = feature_tip(given, &optional);
            assert_eq!(tip.is_some(), feature.is_some(), "{given}");
            assert!(feature.is_none_or(|feature| tip.is_some_and(|tip| tip.contains(&format!("--features {feature}")))), "{given}");
        }
    }
}
