//! Checks the libraries as users get them: the contents of each package, and the compiler version that the package needs.
//! `scripts/check-packages.sh` builds the packages.

use std::{collections::BTreeSet, path::Path, process::Command};

use serde_json::Value;

use super::{LIBRARIES, assert_none, files, read, root};

fn cargo(arguments: &[&str]) -> String {
    let ran = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(ran.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn each_package_has_all_included_files_its_readme_and_its_licences() {
    let mut faults = Vec::new();
    for library in LIBRARIES {
        let manifest = format!("{library}/Cargo.toml");
        let listed = cargo(&["package", "--list", "--offline", "--allow-dirty", "--manifest-path", &manifest]);
        let listed: BTreeSet<&str> = listed.lines().collect();
        for expected in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "Cargo.toml", "src/lib.rs"] {
            if !listed.contains(expected) {
                faults.push(format!("{library} is packaged without {expected}"));
            }
        }
        for (path, text) in files(&format!("{library}/src"), "rs") {
            for included in text.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let inside = inside(Path::new(&path).strip_prefix(library).unwrap().parent().unwrap(), included);
                if !inside.as_deref().is_some_and(|inside| listed.contains(inside)) {
                    faults.push(format!("{path}: {included} is not in the package of {library}"));
                }
            }
        }
    }
    assert_none(&faults, "a package builds by itself");
    let script = read("scripts/check-packages.sh");
    let packed = script.lines().find_map(|line| line.strip_prefix("libraries=(")).unwrap().trim_end_matches(')').split(' ').count();
    assert_eq!(packed, LIBRARIES.len(), "each library is built from its package");
}

/// Resolves a path relative to `folder`, or returns `None` if the path leaves the crate.
fn inside(folder: &Path, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.iter().map(|part| part.to_str().unwrap()).collect();
    for part in path.split('/') {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

#[test]
fn each_package_has_a_description() {
    let metadata: Value = serde_json::from_str(&cargo(&["metadata", "--offline", "--no-deps", "--format-version", "1"])).unwrap();
    let mut faults = Vec::new();
    for library in LIBRARIES {
        let manifest = root().join(library).join("Cargo.toml");
        let packages = metadata["packages"].as_array().unwrap();
        let package = packages.iter().find(|package| Path::new(package["manifest_path"].as_str().unwrap()) == manifest).unwrap();
        for expected in ["description", "license", "rust_version", "readme"] {
            if package[expected].as_str().is_none_or(str::is_empty) {
                faults.push(format!("{library} has no {expected}"));
            }
        }
        let counts = ["keywords", "categories"].map(|key| package[key].as_array().map_or(0, Vec::len));
        if counts.iter().any(|count| !(1..=5).contains(count)) {
            faults.push(format!("{library} has {counts:?} keywords and categories"));
        }
        if package["metadata"]["docs"]["rs"]["all-features"] != true {
            faults.push(format!("{library}: its pages are to show all features"));
        }
        if !read(format!("{library}/README.md")).contains("Apache 2.0") {
            faults.push(format!("{library}: its README does not name its licence"));
        }
    }
    assert_none(&faults, "a package describes itself");
}

#[test]
fn a_web_server_links_neither_handlers_nor_the_worker() {
    let tree = cargo(&["tree", "--offline", "--package", "shop-web", "--edges", "normal", "--prefix", "none", "--format", "{lib}"]);
    let linked: BTreeSet<&str> = tree.lines().collect();
    assert!(linked.contains("shop_domain") && linked.contains("queue_core"), "{linked:?}");
    let unneeded: Vec<&&str> = linked.iter().filter(|library| ["queue_worker", "shop_worker", "clap"].contains(library)).collect();
    assert!(unneeded.is_empty(), "shop-web links {unneeded:?}");
}

/// Parses the major and minor version in a text such as `1.95.0`.
fn version(text: &str) -> (u64, u64) {
    let mut parts = text.split(['.', '-']).map(|part| part.parse().unwrap());
    (parts.next().unwrap(), parts.next().unwrap_or(0))
}

/// Returns the output of `rustc -vV`, which contains the compiler's release and host platform.
fn compiler() -> String {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the minimum compiler version that the workspace promises in `rust-version`.
fn promised() -> String {
    let manifest = read("Cargo.toml");
    manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap().trim_matches('"').to_owned()
}

#[test]
fn the_promised_compiler_is_tested() {
    let (promised, compiler) = (promised(), compiler());
    let release = compiler.lines().find_map(|line| line.strip_prefix("release: ")).unwrap();
    assert!(version(release) >= version(&promised), "this is built by {release}, where {promised} is promised");
    assert!(read("README.md").contains(&format!("Rust {promised}")), "the README names another compiler than {promised}");
    // The installed compiler may be newer than `rust-version`, so `cargo matrix` also compiles the libraries with `rust-version` itself.
    assert!(read("tests/it/matrix.rs").contains("rustc {oldest}."), "Rust {promised} is not tested");
    for library in LIBRARIES {
        assert!(read(format!("{library}/Cargo.toml")).contains("\nrust-version.workspace = true\n"), "{library} promises another compiler");
    }
}

#[test]
fn no_dependency_needs_a_later_compiler_than_is_promised() {
    // Only the dependencies for this machine's platform are available offline.
    let compiler = compiler();
    let platform = compiler.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let all = ["metadata", "--offline", "--locked", "--all-features", "--format-version", "1", "--filter-platform", platform];
    let metadata: Value = serde_json::from_str(&cargo(&all)).unwrap();
    let promised = promised();
    let mut checked = 0;
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let Some(needs) = package["rust_version"].as_str() else { continue };
        checked += 1;
        if version(needs) > version(&promised) {
            faults.push(format!("{} {} needs {needs}", package["name"], package["version"]));
        }
    }
    assert!(checked > 50, "only {checked} packages name the compiler they need");
    assert_none(&faults, &format!("Rust {promised} is promised"));
}

/// The root has the names that most handlers and producers need. All other names are in a public module of their subject.
#[test]
fn the_root_of_queue_core_has_at_most_40_names() {
    let lib = read("queue-core/src/lib.rs");
    let exports = lib.split("\npub use ").skip(1).filter_map(|rest| rest.split_once(';')).map(|(export, _)| export);
    let exports = exports.filter(|export| !export.starts_with("api::"));
    let words = exports.flat_map(|export| export.rsplit_once("::{").map_or(export, |(_, names)| names).split([',', '}', '\n', ' ']));
    let names: Vec<&str> = words.map(|word| word.rsplit("::").next().unwrap()).filter(|word| !word.is_empty()).collect();
    assert!(["Queue", "job", "Context", "sqlx"].iter().all(|name| names.contains(name)), "the names were found: {names:?}");
    assert!(names.len() <= 40, "{} names: {names:?}", names.len());
}
