//! `conformance`: runs the program `queue-conformance` with the command's database.
//!
//! The program is a separate crate, so that worker binaries contain neither its job types nor its dependencies.

use std::{
    env::{self, consts::EXE_SUFFIX},
    ffi::OsString,
    io::{self, ErrorKind},
    path::PathBuf,
    process::{Command, ExitCode},
};

use super::{open::check_addresses, problem::Problem, settings::Settings};

pub(super) const MANUAL: &str = "\
Examples:
  queue-worker conformance                          against the database of the settings
  queue-worker conformance --only limits --json     only operations whose name contains the text
  queue-worker conformance -- --help                all options

It creates three schemas and some roles with names of its own, and drops them at the end. The work is done
by the program `queue-conformance`, which is built from `tests/conformance` of the repository.

Exit codes: 0 all operations work, 1 some do not, 2 the server or the program is unavailable (or wrong usage)";

#[derive(clap::Args)]
pub(super) struct ConformanceArgs {
    /// Options of `queue-conformance`
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

/// Runs the program. On Unix, the program replaces this process, so that it receives signals directly.
pub(super) fn conformance(settings: &Settings, args: ConformanceArgs) -> Result<ExitCode, Problem> {
    check_addresses(settings, !cfg!(debug_assertions))?;
    let program = find_program();
    let mut command = Command::new(&program);
    command.args(args.options);
    // Passing the URLs in environment variables keeps passwords out of the process list.
    for (variable, url) in
        [("DATABASE_URL", &settings.database_url), ("QUEUE_DIRECT_URL", &settings.direct_url), ("QUEUE_READ_URL", &settings.read_url)]
    {
        match url {
            Some(url) => command.env(variable, url),
            None => command.env_remove(variable),
        };
    }
    execute(&mut command).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Problem::usage(
            "the program `queue-conformance` was not found; build it from `tests/conformance` of the same release, and put it into `PATH` \
             or beside this binary",
        ),
        _ => Problem::usage(format!("`{}` cannot be started: {error}", program.display())),
    })
}

/// Returns the path of the program if it exists in the directory of this binary. Otherwise, returns the name of the program, which is then
/// looked up in `PATH`.
fn find_program() -> PathBuf {
    let name = PathBuf::from(format!("queue-conformance{EXE_SUFFIX}"));
    let beside = env::current_exe().ok().and_then(|binary| Some(binary.parent()?.join(&name)));
    beside.filter(|path| path.is_file()).unwrap_or(name)
}

#[cfg(unix)]
fn execute(command: &mut Command) -> io::Result<ExitCode> {
    Err(std::os::unix::process::CommandExt::exec(command))
}

#[cfg(not(unix))]
fn execute(command: &mut Command) -> io::Result<ExitCode> {
    let code = command.status()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
