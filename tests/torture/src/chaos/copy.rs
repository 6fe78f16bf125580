//! A copy of the workspace, for bugs to be put in: built in a folder of its own, so that each takes only what it has changed.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::{root, seeded::Bug, target};

/// The copy.
pub(super) struct Copy {
    source: PathBuf,
    build: PathBuf,
    /// What it is a copy of, by paths from its root.
    files: BTreeMap<String, Vec<u8>>,
}

impl Copy {
    /// Copies what git knows, and what it would; files that are the same already are left alone, so that they are not built again.
    pub(super) fn new() -> Result<Self> {
        let listed =
            Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root()).output()?;
        ensure!(listed.status.success(), "git lists no files: {}", String::from_utf8_lossy(&listed.stderr));
        let names = String::from_utf8(listed.stdout).context("a file's name is no UTF-8")?;
        let names = names.split_terminator('\0').filter(|name| root().join(name).is_file());
        let files = names.map(|name| Ok((name.to_owned(), fs::read(root().join(name))?))).collect::<Result<_>>()?;
        let folder = target().join("seeded");
        let copy = Self { source: folder.join("workspace"), build: folder.join("target"), files };
        for (name, content) in &copy.files {
            copy.write(name, content)?;
        }
        Ok(copy)
    }

    /// Builds this program with a bug, or without; returns it.
    pub(super) fn build(&self, bug: Option<&Bug>) -> Result<PathBuf> {
        let mut changed: BTreeMap<&str, String> = BTreeMap::new();
        for edit in bug.iter().flat_map(|bug| bug.edits) {
            let original = self.files.get(edit.file).with_context(|| format!("there is no {}", edit.file))?;
            let text = changed.entry(edit.file).or_insert_with(|| String::from_utf8_lossy(original).into_owned());
            *text = edit.of(text)?;
        }
        for (name, text) in &changed {
            self.write(name, text.as_bytes())?;
        }
        let built = self.cargo();
        for name in changed.keys() {
            self.write(name, &self.files[*name])?;
        }
        built
    }

    fn cargo(&self) -> Result<PathBuf> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "-p", "torture", "--bin", "chaos"]).current_dir(&self.source).env("CARGO_TARGET_DIR", &self.build);
        // A bug may leave something unused.
        cargo.env("RUSTFLAGS", "--allow warnings").stdin(Stdio::null());
        ensure!(cargo.status()?.success(), "the copy in {} was not built", self.source.display());
        Ok(self.build.join("debug/chaos"))
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.source.join(name);
        if fs::read(&path).is_ok_and(|there| there == content) {
            return Ok(());
        }
        fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
        Ok(fs::write(path, content)?)
    }
}
