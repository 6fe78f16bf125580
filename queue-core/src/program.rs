//! Name of the running program. Error texts suggest commands with this name.

use std::sync::OnceLock;

/// Name of the bundled binary. Error texts suggest commands of this binary unless the program has called [`remember_program`].
pub const BUNDLED: &str = "queue-worker";

static NAME: OnceLock<String> = OnceLock::new();

/// Stores the file name with which the process was started. Command-line tools of this project call this function at startup.
pub fn remember_program() {
    let called = std::env::args_os().next();
    let file = called.as_deref().and_then(|called| std::path::Path::new(called).file_name());
    let name = file.and_then(|name| name.to_str()).unwrap_or(BUNDLED);
    NAME.get_or_init(|| name.strip_suffix(std::env::consts::EXE_SUFFIX).unwrap_or(name).to_owned());
}

/// Returns the program name for error texts.
pub fn program_name() -> &'static str {
    NAME.get().map_or(BUNDLED, String::as_str)
}
