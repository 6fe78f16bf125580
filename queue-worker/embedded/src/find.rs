//! Search for the server's binaries. `QUEUE_PG_BIN` takes precedence. If this variable is not set, the search covers the installation
//! folders of known systems, the folders on PATH, and this crate's data folder.
//!
//! The search considers only the version of the binaries. `run_as` checks whether a user can reach the binaries.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{EmbeddedError, install};

/// Oldest supported major version of `PostgreSQL`.
const MIN_VERSION: u32 = 15;

/// Folders in which package managers and installers place several `PostgreSQL` versions side by side. Each entry contains the parent
/// folder, the name prefix before the version, and the subfolder with the binaries.
const SYSTEM_FOLDERS: &[(&str, &str, &str)] = &[
    ("/usr/lib/postgresql", "", "bin"),                          // Debian, Ubuntu
    ("/opt/homebrew/opt", "postgresql@", "bin"),                 // Homebrew
    ("/usr/local/opt", "postgresql@", "bin"),                    // Homebrew on Intel
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql@", "bin"),    // Homebrew on Linux
    ("/usr", "pgsql-", "bin"),                                   // PGDG packages for Fedora and RHEL
    ("/usr/libexec", "postgresql", ""),                          // Alpine
    ("/Library/PostgreSQL", "", "bin"),                          // EDB installer for macOS
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"), // Postgres.app
];

/// Folder with the binaries `initdb` and `postgres`, and their major version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binaries {
    pub(crate) bin: PathBuf,
    pub(crate) version: u32,
}

/// Returns the first binaries of the `preferred` version, in the order of the search. If there are none, returns the first binaries of
/// any supported version. `own` is this crate's data folder.
pub(crate) fn find(own: Option<&Path>, preferred: Option<u32>) -> Result<Binaries, EmbeddedError> {
    if let Some(bin) = env::var_os("QUEUE_PG_BIN").filter(|bin| !bin.is_empty()) {
        return configured(PathBuf::from(bin));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let (mut first, mut too_old) = (None, None);
    for found in find_all(own, &path) {
        if found.version < MIN_VERSION {
            too_old.get_or_insert(found);
        } else if preferred.is_none_or(|preferred| preferred == found.version) {
            return Ok(found);
        } else {
            first.get_or_insert(found);
        }
    }
    match (first, too_old) {
        (Some(first), _) => Ok(first),
        (None, Some(Binaries { bin, version })) => Err(EmbeddedError::TooOld { bin, version, install: install::instruction() }),
        (None, None) => Err(EmbeddedError::NoServer { looked: searched_folders(own, &path), install: install::instruction() }),
    }
}

/// Returns the binaries in the folder `bin`, which `QUEUE_PG_BIN` names, or in its subfolder `bin`, if their version is supported.
fn configured(bin: PathBuf) -> Result<Binaries, EmbeddedError> {
    let bin = if has_binaries(&bin) { bin } else { bin.join("bin") };
    let bin = fs::canonicalize(&bin).unwrap_or(bin);
    match query_version(&bin) {
        Ok(version) if version >= MIN_VERSION => Ok(Binaries { bin, version }),
        Ok(version) => Err(EmbeddedError::TooOld { bin, version, install: install::instruction() }),
        Err(reason) => Err(EmbeddedError::BadBinaries { bin, reason }),
    }
}

/// Returns all binaries in the order of the search. The iterator is lazy, because it takes milliseconds to run a binary on PATH and query
/// its version.
fn find_all(own: Option<&Path>, path: &OsString) -> impl Iterator<Item = Binaries> {
    let system = SYSTEM_FOLDERS.iter().flat_map(|(parent, prefix, below)| list_versions(Path::new(parent), prefix, below));
    let on_path = env::split_paths(path).collect::<Vec<_>>().into_iter().filter_map(|dir| find_on_path(&dir));
    let own = own.into_iter().flat_map(|own| list_versions(&own.join("postgresql"), "", "bin"));
    system.chain(on_path).chain(own)
}

/// Returns the binaries of all versions below a parent folder, newest version first.
fn list_versions(parent: &Path, prefix: &str, below: &str) -> Vec<Binaries> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<Binaries> = entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            let bin = entry.path().join(below);
            has_binaries(&bin).then_some(Binaries { bin, version })
        })
        .collect();
    found.sort_by_key(|binaries| std::cmp::Reverse(binaries.version));
    found
}

/// Returns the binaries of a folder on PATH. If `postgres` is a symbolic link, prefers the folder of the link's target, because the
/// folder on PATH may not contain both binaries.
fn find_on_path(dir: &Path) -> Option<Binaries> {
    let target = fs::canonicalize(dir.join("postgres")).ok()?;
    let bin = [target.parent()?, dir].into_iter().find(|bin| has_binaries(bin))?.to_owned();
    let version = query_version(&bin).ok()?;
    Some(Binaries { bin, version })
}

fn has_binaries(bin: &Path) -> bool {
    bin.join("initdb").is_file() && bin.join("postgres").is_file()
}

fn query_version(bin: &Path) -> Result<u32, String> {
    if !has_binaries(bin) {
        return Err("`initdb` or `postgres` is missing".to_owned());
    }
    let output = Command::new(bin.join("postgres")).arg("--version").output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_major(&text)
        .ok_or_else(|| format!("`postgres --version` reported {:?} {:?}", text.trim(), String::from_utf8_lossy(&output.stderr).trim()))
}

/// Parses the major version from a text such as `postgres (PostgreSQL) 18beta1`.
fn parse_major(text: &str) -> Option<u32> {
    let (_, version) = text.split_once("(PostgreSQL) ")?;
    version[..version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len())].parse().ok()
}

fn searched_folders(own: Option<&Path>, path: &OsString) -> Vec<PathBuf> {
    let pattern = |parent: &Path, prefix: &str, below: &str| parent.join(format!("{prefix}*")).join(below);
    let system = SYSTEM_FOLDERS.iter().map(|(parent, prefix, below)| pattern(Path::new(parent), prefix, below));
    system.chain(env::split_paths(path)).chain(own.map(|own| pattern(&own.join("postgresql"), "", "bin"))).collect()
}

#[cfg(test)]
mod tests {
    use super::parse_major;

    #[test]
    fn the_major_version_is_read_from_every_form() {
        assert_eq!(parse_major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(parse_major("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(parse_major("postgres (PostgreSQL) 19devel\n"), Some(19));
        assert_eq!(parse_major("postgres (PostgreSQL) 9.6.1\n"), Some(9));
        assert_eq!(parse_major("EnterpriseDB\n"), None);
    }
}
