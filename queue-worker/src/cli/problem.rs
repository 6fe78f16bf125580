//! Errors of commands, with their exit codes.

use std::{fmt, process::ExitCode};

use clap::builder::styling::{AnsiColor, Style};
use queue_core::Error as CoreError;

use crate::{error::Error, escape, program};

/// Error returned by the function that prepares a worker.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Error of a command, with an optional fix and an exit code.
#[derive(Debug)]
pub(super) struct Problem {
    text: String,
    fix: Option<String>,
    code: u8,
}

/// Prints a warning to stderr. The command continues.
pub(super) fn warn(text: &str) {
    // Write errors are ignored, because a closed stderr has no reader.
    let _ = Problem::new(text, FAILED).write_as("warning", AnsiColor::Yellow, &mut anstream::stderr());
}

/// Prints a progress note to stderr.
pub(super) fn note(text: &str) {
    // Write errors are ignored, because a closed stderr has no reader.
    let _ = Problem::new(text, FAILED).write_as("note", AnsiColor::Blue, &mut anstream::stderr());
}

/// Prints a progress note that overwrites the previous note, unless `is_first` is set. If the cursor cannot be moved, only the first note
/// is printed.
pub(super) fn replace_note(text: &str, is_first: bool) {
    let mut out = anstream::stderr();
    let can_move = out.current_choice() != anstream::ColorChoice::Never;
    // Write errors are ignored, because a closed stderr has no reader.
    let _ = Problem::new(text, FAILED).write_again(is_first, can_move, &mut out);
}

/// Exit code for a failed operation.
pub(super) const FAILED: u8 = 1;
/// Exit code for invalid usage or configuration.
const USAGE: u8 = 2;
/// Exit code for an operation whose target does not exist, is in the wrong state, or is locked.
pub(super) const REFUSED: u8 = 3;

impl Problem {
    /// Creates an error for a failed operation, as opposed to a usage error.
    pub(super) fn failed(text: impl fmt::Display) -> Self {
        Self::new(&text.to_string(), FAILED)
    }

    /// Creates an error for an operation whose target does not exist or does not permit the operation.
    pub(super) fn refused(text: impl fmt::Display) -> Self {
        Self::new(&text.to_string(), REFUSED)
    }

    /// Creates an error for invalid settings or arguments.
    pub(super) fn usage(text: impl fmt::Display) -> Self {
        Self::new(&text.to_string(), USAGE)
    }

    /// Returns whether the error was caused by invalid settings or arguments.
    pub(super) fn is_usage(&self) -> bool {
        self.code == USAGE
    }

    /// Returns the error text, followed by the fix.
    pub(super) fn text_with_fix(&self) -> String {
        self.fix.iter().fold(self.text.clone(), |text, fix| format!("{text}; {fix}"))
    }

    /// Creates an error from `text`, split at the first semicolon. The library's errors state the problem before the semicolon and the
    /// fix after it.
    fn new(text: &str, code: u8) -> Self {
        let text = &*program::commands(text);
        let (text, fix) = split_fix(text).map_or((text, None), |(text, fix)| (text, Some(fix)));
        Self { text: escape::lines(text), fix: fix.map(escape::lines), code }
    }

    /// Prints the error to stderr in the format of clap's errors, with colours on a terminal. Returns the exit code.
    pub(super) fn report(self) -> ExitCode {
        // Write errors are ignored, because a closed stderr has no reader.
        let _ = self.write(&mut anstream::stderr());
        ExitCode::from(self.code)
    }

    fn write(&self, out: &mut impl std::io::Write) -> std::io::Result<()> {
        self.write_as("error", AnsiColor::Red, out)
    }

    fn write_again(&self, is_first: bool, can_move: bool, out: &mut impl std::io::Write) -> std::io::Result<()> {
        match (is_first, can_move) {
            (true, _) => {}
            (false, false) => return Ok(()),
            // Moves the cursor to the start of the previous note, and clears the screen from there on.
            (false, true) => write!(out, "\x1b[{}A\r\x1b[J", 1 + u8::from(self.fix.is_some()))?,
        }
        self.write_as("note", AnsiColor::Blue, out)
    }

    fn write_as(&self, what: &str, colour: AnsiColor, out: &mut impl std::io::Write) -> std::io::Result<()> {
        let style = |colour: AnsiColor| Style::new().bold().fg_color(Some(colour.into()));
        let (head, help) = (style(colour), style(AnsiColor::Cyan));
        writeln!(out, "{head}{what}:{head:#} {}", self.text)?;
        self.fix.iter().try_for_each(|fix| writeln!(out, "{help}help:{help:#} {fix}"))
    }
}

/// Splits the text at the first semicolon outside backticks. Returns `None` if there is no such semicolon.
fn split_fix(text: &str) -> Option<(&str, &str)> {
    let is_quoted = |at: usize| text[..at].matches('`').count() % 2 == 1;
    let (at, mark) = text.match_indices("; ").find(|(at, _)| !is_quoted(*at))?;
    Some((&text[..at], &text[at + mark.len()..]))
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Core(
                CoreError::NotFound { .. }
                | CoreError::NoSchedule { .. }
                | CoreError::WrongState { .. }
                | CoreError::Locked { .. }
                | CoreError::KeyTaken { .. }
                | CoreError::NoStore { .. }
                | CoreError::NotPlaced { .. }
                | CoreError::CannotMove { .. },
            ) => REFUSED,
            Error::Config { .. }
            | Error::Limit { .. }
            | Error::NoDatabase
            | Error::Address(_)
            | Error::Core(CoreError::InvalidName { .. } | CoreError::OutOfRange { .. } | CoreError::Schedule { .. })
            | Error::Database(sqlx::Error::Configuration(_)) => USAGE,
            #[cfg(feature = "dashboard")]
            Error::OpenDashboard { .. } => USAGE,
            _ => FAILED,
        };
        Self::new(&error.to_string(), code)
    }
}

impl From<CoreError> for Problem {
    fn from(error: CoreError) -> Self {
        Error::from(error).into()
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        Error::from(error).into()
    }
}

/// Keeps the exit code and the fix of this crate's errors. Other errors are printed with their causes.
impl From<BoxError> for Problem {
    fn from(error: BoxError) -> Self {
        match error.downcast::<Error>() {
            Ok(error) => (*error).into(),
            Err(error) => {
                let causes = std::iter::successors(Some(&*error as &(dyn std::error::Error + 'static)), |error| error.source());
                let causes: Vec<String> = causes.map(ToString::to_string).collect();
                Self { text: escape::lines(&causes.join(": ")), fix: None, code: FAILED }
            }
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(problem: &Problem) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        problem.write(&mut out).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }

    #[test]
    fn a_repeated_note_replaces_the_previous_one_or_is_printed_once() {
        let print = |can_move| {
            let mut out = Vec::new();
            for (text, is_first) in [("back to 9; it goes on", true), ("back to 8; it goes on", false)] {
                Problem::new(text, FAILED).write_again(is_first, can_move, &mut out).unwrap();
            }
            String::from_utf8(out).unwrap()
        };
        let moved = print(true);
        let (first, second) = moved.split_once("\x1b[2A\r\x1b[J").unwrap();
        assert!(first.contains("back to 9\n") && first.ends_with("it goes on\n") && second.contains("back to 8\n"), "{moved:?}");
        assert_eq!(print(false), first);
    }

    #[test]
    fn a_problem_is_printed_with_its_fix() {
        assert_eq!(written(&Problem::failed("no way in; set DATABASE_URL")), "error: no way in\nhelp: set DATABASE_URL\n");
        assert_eq!(written(&Problem::failed("`x; y` is none; name one")), "error: `x; y` is none\nhelp: name one\n");
        assert_eq!(written(&Problem::usage("no\u{1b}[31m name")), "error: no\\u{1b}[31m name\n", "it brings no colours of its own");
    }
}
