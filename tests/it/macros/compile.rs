//! Compiles test cases with rustc directly, against the libraries that this test binary was built from. A separate project would build
//! the libraries again. This module relies on cargo placing libraries next to test binaries.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Mutex,
    time::SystemTime,
};

use tests::beyond_tier_one;

/// Compiles cases by running rustc with the libraries of this build.
pub(super) struct Compiler {
    libraries: PathBuf,
    /// Libraries of the crates in [`NAMED`], as rustc arguments.
    externs: [String; NAMED.len()],
    /// Output folder, which is removed at the end.
    folder: PathBuf,
}

/// Crates that a case may name.
const NAMED: [&str; 4] = ["queue_core", "serde", "serde_json", "queue_worker"];

/// Cases that together name all crates, so they compile only with libraries that match each other.
const PROBES: [&str; 2] = ["ui/pass/serde_attributes.rs", "ui/pass/worker.rs"];

impl Compiler {
    /// Finds the libraries of this build. The folder of this binary may also contain older libraries, or libraries with other features.
    /// This function takes the newest libraries that are older than this binary and match each other.
    pub(super) fn find() -> Self {
        beyond_tier_one("runs rustc");
        let ours = env::current_exe().unwrap();
        let libraries = ours.parent().unwrap().to_owned();
        let built = fs::metadata(&ours).unwrap().modified().unwrap();
        let folder = env::temp_dir().join(format!("queue-ui-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir(&folder).unwrap();
        let mut found = Self { libraries, externs: Default::default(), folder };
        let mut reason = "there are none".to_owned();
        let [cores, serdes, jsons, workers] = NAMED.map(|name| candidates(&found.libraries, name, built));
        let pairs = cores.iter().flat_map(|core| serdes.iter().map(move |serde| (core, serde)));
        for (core, serde, json) in pairs.flat_map(|(core, serde)| jsons.iter().map(move |json| (core, serde, json))) {
            found.externs = [core.clone(), serde.clone(), json.clone(), String::new()];
            if let Err(error) = found.check(PROBES[0]) {
                reason = error;
                continue;
            }
            for worker in &workers {
                found.externs[3].clone_from(worker);
                match found.check(PROBES[1]) {
                    Ok(()) => return found,
                    Err(error) => reason = error,
                }
            }
        }
        panic!("no libraries in {} that {PROBES:?} compile with: {reason}", found.libraries.display());
    }

    /// Checks the types and lifetimes of a case without building it.
    pub(super) fn check(&self, case: &str) -> Result<(), String> {
        self.rustc(case, &["--emit=metadata"], "rmeta").map(drop)
    }

    /// Compiles the case. Returns the path of the program.
    pub(super) fn build(&self, case: &str) -> Result<PathBuf, String> {
        self.rustc(case, &["--emit=link", "-Cdebuginfo=0"], "run")
    }

    fn rustc(&self, case: &str, args: &[&str], ending: &str) -> Result<PathBuf, String> {
        let name = Path::new(case).file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(case).unwrap();
        let (made, manifest) = (self.folder.join(format!("{name}.{ending}")), Path::new(case).with_extension("toml"));
        let output = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
            .args(["--edition=2024", "--crate-type=bin", "--color=never", "--diagnostic-width=140"])
            .args(args)
            .arg(format!("-Ldependency={}", self.libraries.display()))
            // `queue_worker` is linked only if the case names it, because rustc's messages list similar types of all linked crates.
            .args(self.externs.iter().zip(NAMED).filter(|(_, name)| *name != NAMED[3] || text.contains(name)).map(|(one, _)| one))
            .args(["--crate-name", name])
            .arg("-o")
            .args([made.as_path(), Path::new(case)])
            .env_remove("RUSTFLAGS")
            .envs(manifest.exists().then_some(("CARGO_MANIFEST_PATH", manifest)))
            .output()
            .unwrap();
        if output.status.success() { Ok(made) } else { Err(normal(&String::from_utf8_lossy(&output.stderr))) }
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the libraries named `name` that were built no later than `until`, newest first, as rustc arguments.
fn candidates(folder: &Path, name: &str, until: SystemTime) -> Vec<String> {
    let prefix = format!("lib{name}-");
    let mut found: Vec<(SystemTime, PathBuf)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "rlib"))
        .filter(|path| path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(&prefix)))
        .map(|path| (fs::metadata(&path).unwrap().modified().unwrap(), path))
        .filter(|(built, _)| *built <= until)
        .collect();
    found.sort_by(|one, other| other.cmp(one));
    found.into_iter().map(|(_, path)| format!("--extern={name}={}", path.display())).collect()
}

/// Removes variable parts from rustc's output: the checkout's path, line numbers of files that are not cases, the number of omitted types,
/// and the summary.
fn normal(message: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut text = String::new();
    let mut elsewhere = false;
    for line in message.lines() {
        if ["error: aborting due to", "For more information about", "Some errors have detailed"].iter().any(|end| line.starts_with(end)) {
            continue;
        }
        let mut line = line.replace(&format!("{}/", root.display()), "$WORKSPACE/");
        if let Some((_, place)) = line.split_once("--> ") {
            elsewhere = !place.starts_with("ui/");
            if elsewhere {
                line = format!(" --> {}", place.split(':').next().unwrap_or(place));
            }
        } else if elsewhere
            && let Some((number, code)) = line.split_once('|')
            && number.chars().all(|letter| letter == ' ' || letter.is_ascii_digit())
        {
            line = format!("  |{code}");
        } else if line.trim_start().starts_with("and ") && line.ends_with(" others") {
            let indent = line.len() - line.trim_start().len();
            line = format!("{}and $N others", &line[..indent]);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

/// Runs all cases of a folder in parallel, with one thread per core. Returns the failures.
pub(super) fn each(folder: &str, try_one: impl Fn(&str) -> Result<(), String> + Sync) -> Vec<String> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<String> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "rs")).map(|path| path.to_str().unwrap().to_owned()).collect();
    cases.sort_by(|one, other| other.cmp(one));
    assert!(cases.len() > 10, "only {} cases in {folder}", cases.len());
    let (left, faults) = (Mutex::new(cases), Mutex::new(Vec::new()));
    let next = || left.lock().unwrap().pop();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(case) = next() {
                    if let Err(fault) = try_one(&case) {
                        faults.lock().unwrap().push(format!("=== {case}\n{fault}"));
                    }
                }
            });
        }
    });
    faults.into_inner().unwrap()
}

/// Runs a program. Returns its exit status and standard error if it fails.
pub(super) fn run(program: &Path) -> Result<(), String> {
    let Output { status, stderr, .. } = Command::new(program).output().unwrap();
    if status.success() { Ok(()) } else { Err(format!("{status}: {}", String::from_utf8_lossy(&stderr))) }
}
