//! Runs the programs of `docs/ANY_LANGUAGE.md` with the clients installed on this machine. psql is required.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tests::{TestDb, skipped};

use super::Greet;

/// Output that each client program must print.
const OUTPUT: &str = "\
rolled back: 0 jobs
completed: hello, ada
scheduled
over in 50 ms: 0
cancelled
cancelled
refused: 55000
";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn program(name: &str) -> PathBuf {
    root().join("examples/any_language").join(name)
}

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

/// Finds psql in `QUEUE_PG_BIN`, on PATH, or in `/usr/lib/postgresql`.
fn psql() -> Option<PathBuf> {
    let configured = env::var_os("QUEUE_PG_BIN").map(PathBuf::from);
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|version| version.path().join("bin"));
    let path = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>();
    configured
        .into_iter()
        .chain(path)
        .chain(versions)
        .map(|bin| bin.join("psql"))
        .find(|psql| succeeds(Command::new(psql).arg("--version")))
}

/// Returns the first Python interpreter that has psycopg 3. Tries PATH before `/usr/bin/python3`, for which distributions package psycopg.
fn python() -> Option<&'static str> {
    let probe = "from psycopg.types.json import Jsonb";
    ["python3", "/usr/bin/python3"].into_iter().find(|python| succeeds(Command::new(python).args(["-c", probe])))
}

/// Creates a folder with a copy of the client program and a `node_modules` that contains `pg`, because `import` resolves packages only
/// from the program's own folder. CI creates `node_modules` in `target/any_language`. Returns `None` if Node.js or `pg` is not installed.
fn node() -> Option<PathBuf> {
    let elsewhere = env::join_paths([root().join("target/any_language/node_modules")]).unwrap();
    let mut find = Command::new("node");
    find.env("NODE_PATH", env::var_os("NODE_PATH").unwrap_or(elsewhere));
    let found = find.args(["-p", "require('path').dirname(require.resolve('pg/package.json'))"]).stdin(Stdio::null()).output().ok()?;
    let package = String::from_utf8(found.stdout).ok().filter(|_| found.status.success())?;
    let folder = env::temp_dir().join(format!("queue-node-{}", uuid::Uuid::new_v4().simple()));
    fs::create_dir_all(folder.join("node_modules")).unwrap();
    std::os::unix::fs::symlink(package.trim(), folder.join("node_modules/pg")).unwrap();
    fs::copy(program("client.mjs"), folder.join("client.mjs")).unwrap();
    Some(folder)
}

/// Runs a client program together with a worker for `greet` jobs.
async fn run(db: &TestDb, mut client: Command) -> Output {
    client.env("DATABASE_URL", &db.url).stdin(Stdio::null());
    let running = tokio::task::spawn_blocking(move || client.output().unwrap());
    db.run_while(db.worker().register::<Greet>(), running).await.unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn the_clients_in_the_document_print_its_output() {
    let db = TestDb::new().await;
    let mut clients = Vec::new();
    let mut plain = Command::new(psql().expect("psql comes with PostgreSQL"));
    plain.args(["-XqAt", &db.url, "-f"]).arg(program("enqueue.sql"));
    clients.push(("psql", plain));
    if let Some(python) = python() {
        let mut client = Command::new(python);
        client.arg(program("client.py"));
        clients.push(("python", client));
    } else {
        skipped("the client in Python", "no python3 with psycopg 3");
    }
    let folder = node();
    if let Some(folder) = &folder {
        let mut client = Command::new("node");
        client.arg(folder.join("client.mjs"));
        clients.push(("node", client));
    } else {
        skipped("the client in Node", "no node with pg");
    }
    let mut ran = Vec::new();
    for (name, client) in clients {
        let output = run(&db, client).await;
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(stdout, OUTPUT, "{name} complained: {stderr}");
        assert!(output.status.success(), "{name} ended with {}: {stderr}", output.status);
        ran.push(name);
    }
    println!("clients that ran: {}", ran.join(", "));
    if let Some(folder) = folder {
        fs::remove_dir_all(folder).unwrap();
    }
    db.finish().await;
}

#[test]
fn the_document_shows_the_tested_programs() {
    let page = fs::read_to_string(root().join("docs/ANY_LANGUAGE.md")).unwrap();
    for (language, name) in [("sql", "enqueue.sql"), ("python", "client.py"), ("js", "client.mjs")] {
        let program = fs::read_to_string(program(name)).unwrap();
        assert!(page.contains(&format!("\n```{language}\n{program}```\n")), "docs/ANY_LANGUAGE.md must show {name}, word for word");
    }
    assert!(page.contains(&format!("\n```text\n{OUTPUT}```\n")), "and what they print");
    let worker = fs::read_to_string(root().join("examples/src/bin/greeter.rs")).unwrap();
    let (_header, worker) = worker.split_once("\n\n").unwrap();
    assert!(page.contains(&format!("\n```rust\n{worker}```\n")), "and the worker");
}
