//! Name under which this program was called. Messages use it in the commands that they suggest.

use std::sync::OnceLock;

/// Name of the bundled binary, used if the program is not a command line of this project.
pub const BUNDLED: &str = "queue-worker";

static NAME: OnceLock<String> = OnceLock::new();

/// Remembers the name, once the process is known to be a command line.
pub fn remember_program() {
    let called = std::env::args_os().next();
    let file = called.as_deref().and_then(|called| std::path::Path::new(called).file_name());
    let name = file.and_then(|name| name.to_str()).unwrap_or(BUNDLED);
    NAME.get_or_init(|| name.strip_suffix(std::env::consts::EXE_SUFFIX).unwrap_or(name).to_owned());
}

/// Returns the name for messages.
pub fn program_name() -> &'static str {
    NAME.get().map_or(BUNDLED, String::as_str)
}
