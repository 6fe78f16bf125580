//! Program name for messages that contain commands. This module also checks whether a job type ignores signals.

use std::borrow::Cow;

pub(crate) use queue_core::runner::program_name as name;
#[cfg(feature = "cli")]
pub(crate) use queue_core::runner::remember_program as remember;
use queue_core::{operate::Why, registry::Registry, runner::BUNDLED};

/// Replaces `queue-worker` with this program's name in the commands that `text` contains. A command starts at the beginning of the text or
/// after a backtick.
pub(crate) fn commands(text: &str) -> Cow<'_, str> {
    commands_of(text, name())
}

fn commands_of<'t>(text: &'t str, name: &str) -> Cow<'t, str> {
    const COMMAND: &str = "queue-worker ";
    const QUOTED: &str = "`queue-worker ";
    if name == BUNDLED || !text.contains(COMMAND) {
        return Cow::Borrowed(text);
    }
    let text = text.replace(QUOTED, &format!("`{name} "));
    Cow::Owned(text.strip_prefix(COMMAND).map(|rest| format!("{name} {rest}")).unwrap_or(text))
}

/// Returns whether jobs of this type ignore signals. A linked type that is not durable ignores signals. A type that is not linked may be
/// durable in another binary, so the result is `false`.
pub(crate) fn ignores_signals(job_type: &str) -> bool {
    Registry::linked().unwrap_or_default().get(job_type).is_some_and(|found| !found.options().durable)
}

/// Applies [`commands`] to the suggested fix for each cause in `why`.
pub(crate) fn name_commands(mut why: Why) -> Why {
    for fix in why.causes.iter_mut().filter_map(|cause| cause.fix.as_mut()) {
        *fix = commands(fix).into_owned();
    }
    why
}

#[cfg(test)]
mod tests {
    use super::commands_of;

    #[test]
    fn commands_and_nothing_else_are_given_the_name() {
        for (text, expected) in [
            ("queue-worker requeue 7", "app requeue 7"),
            ("start one: `queue-worker run`, or `queue-worker jobs`", "start one: `app run`, or `app jobs`"),
            ("the session of queue-worker claim has it", "the session of queue-worker claim has it"),
        ] {
            assert_eq!(commands_of(text, "app"), expected);
            assert_eq!(commands_of(text, "queue-worker"), text);
        }
    }
}
