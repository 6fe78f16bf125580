//! What is said when a command cannot do what it should, and the exit code that goes with it.

use std::{fmt, process::ExitCode};

use clap::builder::styling::{AnsiColor, Style};
use queue_core::Error as CoreError;

use crate::{error::Error, inert, program};

/// Whatever kept a worker from being prepared.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A text, its fix, an exit code.
#[derive(Debug)]
pub(super) struct Problem {
    text: String,
    fix: Option<String>,
    code: u8,
}

/// Says on stderr what may be wrong with what is done all the same.
pub(super) fn warn(text: &str) {
    // With stderr closed there is nobody to tell.
    let _ = Problem::new(text, FAILED).write_as("warning", AnsiColor::Yellow, &mut anstream::stderr());
}

/// Says on stderr how far something is.
pub(super) fn note(text: &str) {
    // With stderr closed there is nobody to tell.
    let _ = Problem::new(text, FAILED).write_as("note", AnsiColor::Blue, &mut anstream::stderr());
}

/// As [`note`], in the place of the one before it unless it is the first, for what is said again and again. A terminal that cannot do that is told
/// once.
pub(super) fn note_again(text: &str, is_first: bool) {
    let mut out = anstream::stderr();
    let can_move = out.current_choice() != anstream::ColorChoice::Never;
    // As above.
    let _ = Problem::new(text, FAILED).write_again(is_first, can_move, &mut out);
}

/// Something failed.
pub(super) const FAILED: u8 = 1;
/// Usage or configuration.
const USAGE: u8 = 2;
/// No such job, not in this state, or locked.
pub(super) const REFUSED: u8 = 3;

impl Problem {
    /// Something failed.
    pub(super) fn failed(text: impl fmt::Display) -> Self {
        Self::new(&text.to_string(), FAILED)
    }

    /// There is nothing to do it to.
    pub(super) fn refused(text: impl fmt::Display) -> Self {
        Self::new(&text.to_string(), REFUSED)
    }

    /// The settings or arguments are wrong.
    pub(super) fn usage(text: impl fmt::Display) -> Self {
        Self::new(&text.to_string(), USAGE)
    }

    /// Whether the settings or arguments are wrong.
    pub(super) fn is_usage(&self) -> bool {
        self.code == USAGE
    }

    /// Its text with its fix.
    pub(super) fn whole(&self) -> String {
        self.fix.iter().fold(self.text.clone(), |text, fix| format!("{text}; {fix}"))
    }

    /// Our errors say what is wrong, then, after a semicolon, what to do about it.
    fn new(text: &str, code: u8) -> Self {
        let text = &*program::commands(text);
        let (text, fix) = split(text).map_or((text, None), |(text, fix)| (text, Some(fix)));
        Self { text: inert::lines(text), fix: fix.map(inert::lines), code }
    }

    /// Says it on stderr as clap says what is wrong with the arguments: in colours on a terminal, else as bare text.
    pub(super) fn report(self) -> ExitCode {
        // With stderr closed there is nobody to tell.
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
            // To where it began, and nothing below that.
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

/// At the first semicolon, but for those in what is quoted.
fn split(text: &str) -> Option<(&str, &str)> {
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

/// Of an error that is ours the exit code is kept; of any other the causes are said.
impl From<BoxError> for Problem {
    fn from(error: BoxError) -> Self {
        match error.downcast::<Error>() {
            Ok(error) => (*error).into(),
            Err(error) => {
                let causes = std::iter::successors(Some(&*error as &(dyn std::error::Error + 'static)), |error| error.source());
                let causes: Vec<String> = causes.map(ToString::to_string).collect();
                Self { text: inert::lines(&causes.join(": ")), fix: None, code: FAILED }
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

    fn said(problem: &Problem) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        problem.write(&mut out).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }

    #[test]
    fn a_note_that_is_said_again_stands_where_it_stood_or_is_said_once() {
        let said = |can_move| {
            let mut out = Vec::new();
            for (text, is_first) in [("back to 9; it goes on", true), ("back to 8; it goes on", false)] {
                Problem::new(text, FAILED).write_again(is_first, can_move, &mut out).unwrap();
            }
            String::from_utf8(out).unwrap()
        };
        let moved = said(true);
        let (first, second) = moved.split_once("\x1b[2A\r\x1b[J").unwrap();
        assert!(first.contains("back to 9\n") && first.ends_with("it goes on\n") && second.contains("back to 8\n"), "{moved:?}");
        assert_eq!(said(false), first);
    }

    #[test]
    fn a_problem_is_its_text_and_then_what_to_do_about_it() {
        assert_eq!(said(&Problem::failed("no way in; set DATABASE_URL")), "error: no way in\nhelp: set DATABASE_URL\n");
        assert_eq!(said(&Problem::failed("`x; y` is none; name one")), "error: `x; y` is none\nhelp: name one\n");
        assert_eq!(said(&Problem::usage("no\u{1b}[31m name")), "error: no\\u{1b}[31m name\n", "it brings no colours of its own");
    }
}
