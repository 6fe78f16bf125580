//! Tests builds that the suite does not cover: other feature sets, the packaged crates, the oldest supported compiler, and programs with
//! other drivers. Also checks the licences of all crates that may be linked.

use std::process::Command;

use super::house::root;

/// Runs a command in the workspace root and checks that the command succeeds.
fn run(program: &str, arguments: &[&str]) {
    run_as(Command::new(program), program, arguments);
}

fn run_as(mut command: Command, program: &str, arguments: &[&str]) {
    let ran = command.args(arguments).current_dir(root()).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        ran.status.success(),
        "{program} {}: {}\n{}{}",
        arguments.join(" "),
        ran.status,
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    );
}

fn cargo(arguments: &str) {
    run(env!("CARGO"), &arguments.split(' ').collect::<Vec<_>>());
}

/// Returns whether a program is installed and works.
fn answers(program: &str, argument: &str) -> bool {
    Command::new(program).arg(argument).output().is_ok_and(|ran| ran.status.success())
}

/// The suite itself is built with all features, so other combinations are built here.
#[test]
#[ignore = "matrix"]
fn each_feature_of_the_worker_compiles_alone() {
    for features in ["", "cli", "dashboard", "embedded", "health", "logs", "metrics", "otel", "tls", "top"] {
        run(env!("CARGO"), &["check", "--quiet", "-p", "queue-worker", "--no-default-features", "--features", features]);
    }
}

#[test]
#[ignore = "matrix"]
fn each_feature_of_the_core_compiles_alone() {
    for features in ["", "otel", "seal", "testing"] {
        run(env!("CARGO"), &["check", "--quiet", "-p", "queue-core", "--no-default-features", "--features", features]);
    }
}

#[test]
#[ignore = "matrix"]
fn the_libraries_build_from_their_packages() {
    // Remove the compiler wrapper that applies this build's lints, because the folders of the packages do not configure the lints.
    let mut script = Command::new("scripts/check-packages.sh");
    script.env_remove("RUSTC_WORKSPACE_WRAPPER");
    run_as(script, "scripts/check-packages.sh", &[]);
}

#[test]
#[ignore = "matrix"]
fn the_libraries_compile_with_the_oldest_rust_that_is_promised() {
    let manifest = super::house::read("Cargo.toml");
    let oldest = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")).unwrap().trim_end_matches('"');
    let used = Command::new("rustc").arg("--version").output().unwrap();
    if String::from_utf8_lossy(&used.stdout).starts_with(&format!("rustc {oldest}.")) {
        return; // The suite was built with this compiler.
    }
    if !answers("cargo", &format!("+{oldest}")) {
        run("rustup", &["toolchain", "install", "--profile", "minimal", oldest]);
    }
    let toolchain = format!("+{oldest}");
    let libraries = ["-p", "queue-cron", "-p", "queue-macros", "-p", "queue-core", "-p", "queue-embedded", "-p", "queue-worker"];
    run("cargo", &[&[toolchain.as_str(), "check", "--quiet", "--target-dir", "target/oldest", "--all-features"], &libraries[..]].concat());
}

#[test]
#[ignore = "matrix"]
fn linked_crates_have_an_allowed_licence_and_source() {
    if !answers("cargo-deny", "--version") {
        // A debug build of cargo-deny takes one minute instead of several, and cargo-deny itself runs for only a second.
        cargo("install --quiet --locked --debug cargo-deny");
    }
    // Crates for other systems are not built here, but their licences must be checked too.
    cargo("fetch --quiet --locked");
    cargo("deny --offline check bans licenses sources");
    cargo("fetch --quiet --locked --manifest-path examples/drivers/Cargo.toml");
    cargo("deny --offline --manifest-path examples/drivers/Cargo.toml check licenses sources");
}

/// The programs in `examples/drivers` enqueue through the SQL functions, each on an embedded server.
#[test]
#[ignore = "matrix"]
fn programs_with_other_drivers_enqueue() {
    let manifest = "--manifest-path examples/drivers/Cargo.toml";
    cargo(&format!("fmt --check {manifest}"));
    cargo(&format!("clippy --quiet --locked --target-dir target {manifest} --all-targets -- -D warnings"));
    let data = tests::scratch().join(format!("queue-drivers-{}", std::process::id()));
    for program in std::fs::read_dir(root().join("examples/drivers/src/bin")).unwrap() {
        let program = program.unwrap().path();
        let name = program.file_stem().unwrap().to_str().unwrap();
        let arguments = format!("run --quiet --locked --target-dir target {manifest} --bin {name}");
        let ran = Command::new(env!("CARGO")).args(arguments.split(' ')).env("QUEUE_PG_DATA", &data).current_dir(root()).output().unwrap();
        assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    std::fs::remove_dir_all(&data).unwrap();
}
