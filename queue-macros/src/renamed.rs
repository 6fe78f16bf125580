//! Detects whether the user's `Cargo.toml` renames the dependency `queue-core`. Without this check, rustc would only report that
//! `queue_core` does not exist.

use std::{env, fs};

use proc_macro2::Span;
use syn::{Error, Ident};

/// Returns the name to which the crate's manifest renames `queue-core`, and the error to report. Returns `None` if the dependency is not
/// renamed. `attribute` is the name of the attribute macro, for the error message.
pub(crate) fn check(attribute: &str) -> Option<(Ident, Error)> {
    let name = other_name(&fs::read_to_string(env::var_os("CARGO_MANIFEST_PATH")?).ok()?)?;
    let message =
        format!("this crate depends on `queue-core` as `{name}` in its Cargo.toml; name it here: `#[{attribute}(crate = {name})]`");
    Some((syn::parse_str(&name).ok()?, Error::new(Span::call_site(), message)))
}

/// Returns the name to which the manifest renames `queue-core`. Returns `None` if a dependency keeps the name `queue-core`, or if no
/// dependency is renamed. Searches only the crate's own manifest. A rename in the workspace manifest is therefore not found, and rustc
/// reports the missing `queue_core`.
fn other_name(manifest: &str) -> Option<String> {
    let (mut section, mut other) = (String::new(), None);
    for line in manifest.lines() {
        let line: String = line.split('#').next().unwrap_or_default().split_whitespace().collect::<String>().replace('\'', "\"");
        if line.starts_with('[') {
            line.trim_matches(['[', ']']).clone_into(&mut section);
        }
        let (table, entry) = section.rsplit_once("dependencies").map_or(("none", ""), |(table, entry)| (table, entry));
        if table == "none" || table.starts_with("workspace.") {
            continue;
        }
        let key = match entry.strip_prefix('.') {
            Some(key) => key,
            None => line.split(['=', '.']).next().unwrap_or_default(),
        };
        match key.trim_matches('"') {
            "queue-core" | "queue_core" => return None,
            key if line.contains("package=\"queue-core\"") => other = Some(key.replace('-', "_")),
            _ => {}
        }
    }
    other
}

#[cfg(test)]
mod tests {
    use super::other_name;

    #[test]
    fn a_renamed_dependency_is_found_in_every_form() {
        for (manifest, found) in [
            ("[dependencies]\nserde = '1'\njobs = { package = 'queue-core', version = '0.1' }", Some("jobs")),
            ("[dependencies]\nour-jobs = { version = \"0.1\", package=\"queue-core\" } # ours", Some("our_jobs")),
            ("[dependencies.jobs]\nversion = '0.1'\npackage = 'queue-core'\n\n[features]\n", Some("jobs")),
            ("[target.'cfg(unix)'.dependencies]\njobs.package = 'queue-core'", Some("jobs")),
            ("[dependencies]\nqueue-core = '0.1'\n[dev-dependencies]\njobs = { package = 'queue-core' }", None),
            ("[dependencies]\nqueue-core.workspace = true", None),
            ("[dependencies.queue-core]\nversion = '0.1'", None),
            ("[workspace.dependencies]\njobs = { package = 'queue-core' }", None),
            ("[package]\nname = 'jobs'\n# jobs = { package = 'queue-core' }", None),
        ] {
            assert_eq!(other_name(manifest).as_deref(), found, "{manifest}");
        }
    }
}
