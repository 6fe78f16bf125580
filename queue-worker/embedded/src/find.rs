//! Finds the server's binaries: where they were told to be, where systems put them, on PATH, and in our own folder.
//!
//! Decides by version only; whether a user may run them is `run_as`'s question.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{EmbeddedError, install};

/// The oldest major version that our SQL runs on.
const OLDEST: u32 = 15;

/// Folders of versions: parent, what stands before the version in an entry's name, and where the binaries are below it.
const SYSTEM: &[(&str, &str, &str)] = &[
    ("/usr/lib/postgresql", "", "bin"),                          // Debian, Ubuntu
    ("/opt/homebrew/opt", "postgresql@", "bin"),                 // Homebrew
    ("/usr/local/opt", "postgresql@", "bin"),                    // Homebrew on Intel
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql@", "bin"),    // Homebrew on Linux
    ("/usr", "pgsql-", "bin"),                                   // the project's own packages for Fedora and relatives
    ("/usr/libexec", "postgresql", ""),                          // Alpine
    ("/Library/PostgreSQL", "", "bin"),                          // the installer for macOS
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"), // Postgres.app
];

/// A folder with `initdb` and `postgres`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binaries {
    pub(crate) bin: PathBuf,
    pub(crate) version: u32,
}

/// The first binaries of the `preferred` version if there are any, else the first at all. `own` is our folder for data.
pub(crate) fn find(own: Option<&Path>, preferred: Option<u32>) -> Result<Binaries, EmbeddedError> {
    if let Some(bin) = env::var_os("QUEUE_PG_BIN").filter(|bin| !bin.is_empty()) {
        return told(PathBuf::from(bin));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let (mut first, mut too_old) = (None, None);
    for found in candidates(own, &path) {
        if found.version < OLDEST {
            too_old.get_or_insert(found);
        } else if preferred.is_none_or(|preferred| preferred == found.version) {
            return Ok(found);
        } else {
            first.get_or_insert(found);
        }
    }
    match (first, too_old) {
        (Some(first), _) => Ok(first),
        (None, Some(Binaries { bin, version })) => Err(EmbeddedError::TooOld { bin, version, install: install::advice() }),
        (None, None) => Err(EmbeddedError::NoServer { looked: looked(own, &path), install: install::advice() }),
    }
}

/// The folder that `QUEUE_PG_BIN` names; the folder above it is understood too.
fn told(bin: PathBuf) -> Result<Binaries, EmbeddedError> {
    let bin = if complete(&bin) { bin } else { bin.join("bin") };
    let bin = fs::canonicalize(&bin).unwrap_or(bin);
    match version(&bin) {
        Ok(version) if version >= OLDEST => Ok(Binaries { bin, version }),
        Ok(version) => Err(EmbeddedError::TooOld { bin, version, install: install::advice() }),
        Err(reason) => Err(EmbeddedError::BadBinaries { bin, reason }),
    }
}

/// Lazily, because asking a binary on PATH for its version costs some milliseconds.
fn candidates(own: Option<&Path>, path: &OsString) -> impl Iterator<Item = Binaries> {
    let system = SYSTEM.iter().flat_map(|(parent, prefix, below)| versions(Path::new(parent), prefix, below));
    let on_path = env::split_paths(path).collect::<Vec<_>>().into_iter().filter_map(|dir| on_path(&dir));
    let own = own.into_iter().flat_map(|own| versions(&own.join("postgresql"), "", "bin"));
    system.chain(on_path).chain(own)
}

/// The versions in a folder of versions, the highest first.
fn versions(parent: &Path, prefix: &str, below: &str) -> Vec<Binaries> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<Binaries> = entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            let bin = entry.path().join(below);
            complete(&bin).then_some(Binaries { bin, version })
        })
        .collect();
    found.sort_by_key(|binaries| std::cmp::Reverse(binaries.version));
    found
}

/// PATH often has a lone symbolic link to `postgres`; `initdb` is then beside what it points to.
fn on_path(dir: &Path) -> Option<Binaries> {
    let target = fs::canonicalize(dir.join("postgres")).ok()?;
    let bin = [target.parent()?, dir].into_iter().find(|bin| complete(bin))?.to_owned();
    let version = version(&bin).ok()?;
    Some(Binaries { bin, version })
}

fn complete(bin: &Path) -> bool {
    bin.join("initdb").is_file() && bin.join("postgres").is_file()
}

fn version(bin: &Path) -> Result<u32, String> {
    if !complete(bin) {
        return Err("`initdb` or `postgres` is missing".to_owned());
    }
    let output = Command::new(bin.join("postgres")).arg("--version").output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    major(&text).ok_or_else(|| format!("`postgres --version` says {:?} {:?}", text.trim(), String::from_utf8_lossy(&output.stderr).trim()))
}

/// The major version in a text such as `postgres (PostgreSQL) 18beta1`.
fn major(text: &str) -> Option<u32> {
    let (_, version) = text.split_once("(PostgreSQL) ")?;
    version[..version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len())].parse().ok()
}

fn looked(own: Option<&Path>, path: &OsString) -> Vec<PathBuf> {
    let pattern = |parent: &Path, prefix: &str, below: &str| parent.join(format!("{prefix}*")).join(below);
    let system = SYSTEM.iter().map(|(parent, prefix, below)| pattern(Path::new(parent), prefix, below));
    system.chain(env::split_paths(path)).chain(own.map(|own| pattern(&own.join("postgresql"), "", "bin"))).collect()
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn the_major_version_is_read_from_every_form() {
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(major("postgres (PostgreSQL) 19devel\n"), Some(19));
        assert_eq!(major("postgres (PostgreSQL) 9.6.1\n"), Some(9));
        assert_eq!(major("EnterpriseDB\n"), None);
    }
}
