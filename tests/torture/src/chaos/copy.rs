//! Copy of the workspace into which bugs are inserted. The copy has its own target directory, so that each build compiles only what has
//! changed.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::{root, seeded::Bug, target};

/// Copy of the workspace for builds with bugs.
pub(super) struct WorkspaceCopy {
    source: PathBuf,
    build: PathBuf,
    /// Original files, by path relative to the workspace root.
    files: BTreeMap<String, Vec<u8>>,
}

impl WorkspaceCopy {
    /// Copies the files that git tracks or would track. Unchanged files keep their timestamps, so that cargo does not build them again.
    pub(super) fn new() -> Result<Self> {
        let listed =
            Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root()).output()?;
        ensure!(listed.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr));
        let names = String::from_utf8(listed.stdout).context("a file name is not UTF-8")?;
        let names = names.split_terminator('\0').filter(|name| root().join(name).is_file());
        let files = names.map(|name| Ok((name.to_owned(), fs::read(root().join(name))?))).collect::<Result<_>>()?;
        let folder = target().join("seeded");
        let copy = Self { source: folder.join("workspace"), build: folder.join("target"), files };
        for (name, content) in &copy.files {
            copy.write(name, content)?;
        }
        Ok(copy)
    }

    /// Builds the program `chaos` in the copy, with the bug if one is given. Returns the path of the binary.
    pub(super) fn build(&self, bug: Option<&Bug>) -> Result<PathBuf> {
        let mut changed: BTreeMap<&str, String> = BTreeMap::new();
        for edit in bug.iter().flat_map(|bug| bug.edits) {
            let original = self.files.get(edit.file).with_context(|| format!("no such file: {}", edit.file))?;
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
        // A bug may leave unused items, which must not fail the build.
        cargo.env("RUSTFLAGS", "--allow warnings").stdin(Stdio::null());
        ensure!(cargo.status()?.success(), "the build of the copy in {} failed", self.source.display());
        Ok(self.build.join("debug/chaos"))
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.source.join(name);
        if fs::read(&path).is_ok_and(|there| there == content) {
            return Ok(());
        }
        fs::create_dir_all(path.parent().context("the file has no directory")?)?;
        Ok(fs::write(path, content)?)
    }
}
