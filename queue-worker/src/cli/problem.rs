//! What is said when a command cannot do what it should, and the exit code that goes with it.

use std::{
    fmt,
    io::{IsTerminal as _, Write as _, stderr},
    process::ExitCode,
};

use miette::{Diagnostic, MietteHandlerOpts, Report};
use queue_core::Error as CoreError;

use super::{BoxError, inert};
use crate::error::Error;

/// A text, its fix, an exit code.
#[derive(Debug)]
pub(super) struct Problem {
    text: String,
    fix: Option<String>,
    code: u8,
}

/// Something failed.
const FAILED: u8 = 1;
/// Usage or configuration.
const USAGE: u8 = 2;
/// No such job, or not in this state.
pub(super) const REFUSED: u8 = 3;

impl Problem {
    /// Something failed.
    pub(super) fn failed(text: impl fmt::Display) -> Self {
        Self::new(&text.to_string(), FAILED)
    }

    /// The settings or arguments are wrong.
    pub(super) fn usage(text: impl fmt::Display) -> Self {
        Self::new(&text.to_string(), USAGE)
    }

    /// Our errors say what is wrong, then, after a semicolon, what to do about it.
    fn new(text: &str, code: u8) -> Self {
        let (text, fix) = text.split_once("; ").map_or((text, None), |(text, fix)| (text, Some(fix)));
        Self { text: inert::lines(text), fix: fix.map(inert::lines), code }
    }

    /// Says it on stderr.
    pub(super) fn report(self) -> ExitCode {
        let code = self.code;
        // Lines are wrapped for people only: programs search them. The hook cannot be set where the program has set its own.
        let shown = MietteHandlerOpts::new().wrap_lines(stderr().is_terminal()).break_words(false).without_cause_chain();
        let _ = miette::set_hook(Box::new(move |_| Box::new(shown.clone().build())));
        // With stderr closed there is nobody to tell.
        let _ = writeln!(stderr(), "{:?}", Report::new(self));
        ExitCode::from(code)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::NotFound(_) | Error::WrongState { .. } | Error::Held { .. } => REFUSED,
            Error::Config { .. }
            | Error::NoDatabase
            | Error::Core(CoreError::InvalidName { .. } | CoreError::OutOfRange { .. })
            | Error::Database(sqlx::Error::Configuration(_)) => USAGE,
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

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.fix.as_ref().map(|fix| Box::new(fix) as Box<dyn fmt::Display>)
    }
}
