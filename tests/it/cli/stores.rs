//! Tests the `stores` commands. Several tests add faulty stores to two healthy ones. The results of the healthy stores must still be
//! printed.

mod pauses;

use std::process::{Command, Output, Stdio};

use queue_core::{
    Job as _, JobState, Store, migrate,
    stores::{Member, MoveState, Rule, StoreJob, Stores},
};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tests::{Act, Do, TestDb, eventually};

use super::{CLI, RunningCommand, command, failed, folder, text};

/// Database entry whose URL names a port without a server. The password in the URL must not appear in any output.
const AWAY: &str = "away=postgres://u:swordfish@127.0.0.1:1/d";

fn stores(db: &TestDb, arguments: &[&str]) -> Command {
    let mut command = command(CLI, &[&["stores"], arguments].concat());
    command.env("DATABASE_URL", &db.url).env("QUEUE_DATABASES", AWAY);
    command
}

fn on(db: &TestDb, arguments: &[&str]) -> Output {
    stores(db, arguments).output().unwrap()
}

/// Runs a `stores` command and checks that it does not print the password of [`AWAY`]. Returns the exit code, stdout and stderr.
fn run_command(db: &TestDb, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = on(db, arguments);
    let (out, err) = (text(&output.stdout).to_owned(), text(&output.stderr).to_owned());
    assert!(!out.contains("swordfish") && !err.contains("swordfish"), "{arguments:?}: {out}{err}");
    (output.status.code(), out, err)
}

/// Runs a `stores` command with `--json`. Returns the printed document and the exit code.
fn answer(db: &TestDb, arguments: &[&str]) -> (Value, Option<i32>) {
    let (code, out, err) = run_command(db, &[arguments, &["--json"]].concat());
    (serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}{err}")), code)
}

/// Runs a `stores` command with `--json`, which must succeed. Returns the printed document.
fn json_of(db: &TestDb, arguments: &[&str]) -> Value {
    let (document, code) = answer(db, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {document}");
    document
}

/// Opens the stores through the Rust API, as an application does.
fn open_stores(db: &TestDb) -> Stores {
    Stores::new(&db.pool, Store::new("homes").unwrap()).rule(Rule::Explicit).database("main", &db.pool).unwrap()
}

async fn run_sql(db: &TestDb, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&db.pool).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Creates two healthy stores.
async fn create_two(db: &TestDb) -> [Member; 2] {
    // The unreachable database is not configured here, because it would make `migrate` fail.
    let mut migrate = stores(db, &["migrate"]);
    assert!(migrate.env_remove("QUEUE_DATABASES").status().unwrap().success());
    assert_eq!(json_of(db, &["add", "one", "main", "one", "--migrate"])["added"]["store"], "one");
    assert_eq!(json_of(db, &["add", "two", "main", "two", "--migrate"])["added"]["store"], "two");
    let stores = open_stores(db);
    stores.refresh().await.unwrap();
    ["one", "two"].map(|name| stores.roster().get(name).unwrap())
}

/// Creates two healthy stores and three faulty ones. The schema of `gone` is dropped, the database of `far` is unreachable, and the
/// database of `lost` is not configured.
async fn with_others(db: &TestDb) -> [Member; 2] {
    let members = create_two(db).await;
    json_of(db, &["add", "gone", "main", "gone", "--migrate"]);
    run_sql(db, "drop schema gone cascade").await;
    run_sql(db, "insert into homes.store (name, database, schema) values ('far', 'away', 'far'), ('lost', 'nowhere', 'lost')").await;
    members
}

async fn enqueue(member: &Member, act: Act) -> String {
    let id = Do { act }.enqueue(member.pool()).store(member.store()).await.unwrap().id();
    StoreJob::new(member.name(), id).unwrap().to_string()
}

async fn state(member: &Member, job: &str) -> Option<JobState> {
    let id = job.parse::<StoreJob>().unwrap().id();
    let query = member.store().sql("select state from queue.jobs where id = $1");
    let found: Option<String> = sqlx::query_scalar(query).bind(id).fetch_optional(member.pool()).await.unwrap();
    found.map(|state| state.parse().unwrap())
}

#[tokio::test]
#[ignore = "deep"]
async fn stores_that_do_not_answer_are_reported_beside_the_answers_of_the_others() {
    let db = TestDb::new().await;
    let [one, two] = with_others(&db).await;
    let jobs = [enqueue(&one, Act::Hang).await, enqueue(&two, Act::Hang).await, enqueue(&two, Act::Hang).await];

    let (counts, code) = answer(&db, &["counts"]);
    assert_eq!((code, &counts["totals"]), (Some(1), &json!([{ "state": "ready", "jobs": 3, "partial": true }])));
    assert_eq!(counts["stores"].as_array().unwrap().iter().map(|of| &of["store"]).collect::<Vec<_>>(), ["one", "two"]);
    let why = |store: &str| {
        let failed = counts["failed"].as_array().unwrap();
        failed.iter().find(|of| of["store"] == store).unwrap_or_else(|| panic!("{counts}"))["error"].as_str().unwrap().to_owned()
    };
    assert!(why("gone").contains("stores migrate --all") && why("gone").contains("stores remove"), "{}", why("gone"));
    assert!(why("far").contains("127.0.0.1:1") && why("far").contains("out of reach"), "{}", why("far"));
    assert!(why("lost").contains("--database nowhere=URL"), "{}", why("lost"));
    let (code, out, err) = run_command(&db, &["counts"]);
    assert_eq!(code, Some(1));
    let all = out.lines().last().unwrap();
    assert!(all.starts_with("all") && all.contains(" 3+ "), "{out}");
    for store in ["gone", "far", "lost"] {
        assert!(err.contains(&format!("error: the store `{store}`: ")), "{err}");
    }

    let (page, code) = answer(&db, &["jobs", "--state", "ready"]);
    let shown: Vec<_> = page["jobs"].as_array().unwrap().iter().map(|job| job["store_job"].as_str().unwrap()).collect();
    assert_eq!((code, shown), (Some(1), jobs.iter().rev().map(String::as_str).collect::<Vec<_>>()), "the newest first: {page}");
    let (code, out, _) = run_command(&db, &["jobs"]);
    assert!(code == Some(1) && jobs.iter().all(|job| out.contains(job)), "{out}");

    // Only the store named in the id is queried, so the faulty stores cause no error.
    let shown = json_of(&db, &["show", &jobs[0]]);
    assert_eq!((&shown["store_job"], &shown["store"], &shown["payload"]), (&jobs[0].as_str().into(), &"one".into(), &Value::Null));
    assert_eq!(json_of(&db, &["show", &jobs[0], "--payload"])["payload"]["act"], "Hang");
    assert!(run_command(&db, &["show", &jobs[0]]).1.contains(&format!("test-cli stores why {}", jobs[0])));
    assert_eq!(json_of(&db, &["why", &jobs[1]])["store_job"], jobs[1].as_str());
    let (code, out, _) = run_command(&db, &["why", &jobs[1]]);
    assert!(code == Some(0) && out.contains(&format!("job {}: do", jobs[1])) && out.contains("`main`"), "{out}");
    assert_eq!(run_command(&db, &["why", "one/7"]).0, Some(3), "there is no such job, which is an answer");

    for (job, code, expected) in [
        ("one/7", 3, "in the store `one`: there is no job 7"),
        ("nowhere/7", 3, "`test-cli stores list`"),
        ("gone/7", 1, "holds no job queue"),
        ("far/7", 1, "out of reach"),
        ("lost/7", 1, "--database nowhere=URL"),
        ("7", 2, "store/123"),
    ] {
        let (ended, out, err) = run_command(&db, &["show", job]);
        assert!(ended == Some(code) && out.is_empty() && err.contains(expected), "{job}: {ended:?}: {err}");
    }
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_list_of_all_stores_has_no_gaps_and_no_doubles_from_page_to_page() {
    let db = TestDb::new().await;
    let members = create_two(&db).await;
    let mut all = Vec::new();
    for nth in 0..20 {
        // One of the two stores gets four fifths of the jobs.
        all.push(enqueue(&members[usize::from(nth % 5 == 0)], Act::Hang).await);
    }
    // Jobs of two stores may have the same id, because ids are built from the clock and a sequence. A copied job simulates this case.
    let id = all[10].split_once('/').unwrap().1.to_owned();
    let (from, to) = if all[10].starts_with("one") { ("one", "two") } else { ("two", "one") };
    run_sql(&db, &format!("insert into {to}.job select * from {from}.job where id = {id}")).await;
    run_sql(&db, &format!("insert into {to}.ready select * from {from}.ready where id = {id}")).await;
    all.push(format!("{to}/{id}"));
    let (mut seen, mut before) = (Vec::new(), None::<String>);
    loop {
        let mut arguments = vec!["jobs", "--limit", "3"];
        if let Some(before) = &before {
            arguments.extend(["--before", before]);
        }
        let page = json_of(&db, &arguments);
        seen.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["store_job"].as_str().unwrap().to_owned()));
        assert!(page["jobs"].as_array().unwrap().len() <= 4);
        match page["next"].as_str() {
            Some(next) => before = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(seen.len(), all.len(), "{seen:?}");
    seen.sort();
    all.sort();
    assert_eq!(seen, all);
    let (code, out, err) = run_command(&db, &["jobs", "--queue", "mial"]);
    assert!(code == Some(0) && out.contains("no jobs") && err.matches("into the queue `mial`").count() == 1, "{out}{err}");
    assert_eq!(run_command(&db, &["jobs", "--queue", "a b"]).0, Some(2));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn operations_run_in_every_store_that_answers_after_a_confirmation() {
    let db = TestDb::new().await;
    let [one, two] = with_others(&db).await;
    let jobs = [enqueue(&one, Act::Hang).await, enqueue(&two, Act::Hang).await, enqueue(&two, Act::Hang).await];

    let (code, out, err) = run_command(&db, &["cancel", "--all"]);
    assert!(code == Some(2) && out.is_empty(), "{err}");
    assert!(err.contains("3 jobs would be cancelled in 2 stores, and 3 stores have not answered") && err.contains("--yes"), "{err}");
    let (counted, code) = answer(&db, &["cancel", "--all", "--dry-run"]);
    assert_eq!((code, &counted["found"], &counted["stores"][1]["found"]), (Some(1), &3.into(), &2.into()));
    for (member, job) in [(&one, &jobs[0]), (&two, &jobs[1]), (&two, &jobs[2])] {
        assert_eq!(state(member, job).await, Some(JobState::Ready));
    }
    assert_eq!(run_command(&db, &["cancel", "--all", "--state", "dead", "--yes"]).0, Some(2), "what is wrong is wrong for all");

    // Rejected ids and unreachable stores do not prevent the operation on the other jobs.
    let (done, code) = answer(&db, &["cancel", &jobs[0], "gone/7", "two/7", "far/8", &jobs[1]]);
    assert_eq!((code, &done["cancelled"]), (Some(1), &json!([jobs[0], jobs[1]])), "{done}");
    assert_eq!(done["refused"][0]["id"], "two/7");
    assert_eq!(done["failed"].as_array().unwrap().iter().map(|of| &of["store"]).collect::<Vec<_>>(), ["gone", "far"]);
    let (code, _, err) = run_command(&db, &["requeue", &jobs[0], "one/7"]);
    assert!(code == Some(3) && err.contains("in the store `one`: there is no job 7"), "{err}");
    assert_eq!(run_command(&db, &["cancel", &jobs[0], "nowhere/1"]).0, Some(3));
    assert_eq!(state(&one, &jobs[0]).await, Some(JobState::Ready), "nothing is done for a name that is wrong");
    assert_eq!(run_command(&db, &["cancel", &jobs[0], "--yes"]).0, Some(2));

    let (done, code) = answer(&db, &["cancel", "--all", "--yes"]);
    assert_eq!((code, &done["cancelled"], done["failed"].as_array().unwrap().len()), (Some(1), &2.into(), 3), "{done}");
    assert_eq!(
        done["stores"],
        json!([{ "store": "one", "cancelled": 1, "cancelling": 0 }, { "store": "two", "cancelled": 1, "cancelling": 0 }])
    );
    for (member, job) in [(&one, &jobs[0]), (&two, &jobs[1]), (&two, &jobs[2])] {
        assert_eq!(state(member, job).await, Some(JobState::Cancelled));
    }
    let noted = db.count("select count(*) from one.audit where act = 'cancelled' and actor like '%by the command line'").await;
    assert_eq!(noted, 2, "each act is noted in its store");
    assert_eq!(run_command(&db, &["requeue", "--all", "--rate", "5/s"]).0, Some(1), "there is nothing to ask for");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_store_whose_tables_are_locked_is_given_up_and_the_others_answer() {
    let db = TestDb::new().await;
    let [one, _] = create_two(&db).await;
    enqueue(&one, Act::Hang).await;
    let mut lock = db.pool.begin().await.unwrap();
    sqlx::raw_sql("lock table two.ready, two.job, two.lane in access exclusive mode").execute(&mut *lock).await.unwrap();
    let (counts, code) = answer(&db, &["counts"]);
    assert_eq!((code, &counts["stores"][0]["store"], &counts["failed"][0]["store"]), (Some(1), &"one".into(), &"two".into()), "{counts}");
    lock.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn stores_are_added_closed_and_removed_and_errors_name_the_fix() {
    let db = TestDb::new().await;
    let (code, out, err) = run_command(&db, &["list"]);
    assert!(code == Some(1) && out.is_empty() && err.contains("`test-cli stores migrate`") && err.contains("--homes"), "{err}");
    let (migrated, code) = answer(&db, &["migrate"]);
    assert_eq!((code, &migrated["homes"], migrated["lost"].as_array().unwrap().len()), (Some(1), &"homes".into(), 1), "{migrated}");
    assert!(run_command(&db, &["list"]).1.contains("stores add"));
    let secret = "postgres://u:swordfish@h/d";
    for (arguments, code, expected) in [
        (&["add", "one", "main", "one"][..], 1, "pass `--migrate`"),
        (&["add", "one", secret, "one"], 2, "NAME=URL"),
        (&["add", "one", "nowhere", "one"], 2, "--database nowhere=URL"),
        (&["add", "one", "away", "one"], 1, "out of reach"),
        (&["add", "a b", "main", "one"], 2, "name of a store"),
        (&["add", "one", "main", "a\"b"], 2, "schema"),
        (&["add", "one", "main", "homes", "--migrate"], 2, "placement tables"),
        (&["list", "--database", secret], 2, "eu=postgres://"),
        (&["list", "--database", "eu=a", "--database", "eu=b"], 2, "`eu`"),
        (&["list", "--homes", "a\"b"], 2, "schema"),
        (&["close", "one"], 3, "stores list"),
        (&["remove", "one"], 3, "stores list"),
        (&["where", "acme"], 3, "stores place"),
        (&["place", "acme", "one"], 3, "stores list"),
        (&["move", "acme", "one"], 3, "stores list"),
    ] {
        let (ended, out, err) = run_command(&db, arguments);
        assert!(ended == Some(code) && out.is_empty() && err.contains(expected), "{arguments:?}: {ended:?}: {out}{err}");
    }
    let [one, _] = create_two(&db).await;
    for (arguments, expected) in [(&["add", "one", "main", "two"][..], "another name"), (&["add", "three", "main", "two"], "already")] {
        let (ended, _, err) = run_command(&db, arguments);
        assert!(ended == Some(2) && err.contains(expected), "{err}");
    }
    assert_eq!(json_of(&db, &["place", "acme", "one"])["is_new"], true);
    assert_eq!(json_of(&db, &["place", "acme", "one"])["is_new"], false);
    assert_eq!(run_command(&db, &["place", "acme", "two"]).0, Some(3));
    assert_eq!(run_command(&db, &["where", "acme"]).1, "one\n");
    let (code, _, err) = run_command(&db, &["remove", "one", "--yes"]);
    assert!(code == Some(3) && err.contains("1 tenants are in the store `one`"), "{err}");
    let job = enqueue(&one, Act::Hang).await;
    assert_eq!(json_of(&db, &["close", "one"])["tenants"], 1);
    assert_eq!(run_command(&db, &["place", "globex", "one"]).0, Some(3));
    let listed = json_of(&db, &["list"]);
    assert_eq!(listed["stores"][0], json!({ "name": "one", "database": "main", "schema": "one", "is_open": false, "tenants": 1 }));
    assert!(run_command(&db, &["list"]).1.contains("closed"));
    run_sql(&db, "delete from homes.place").await;
    let (code, _, err) = run_command(&db, &["remove", "one"]);
    assert!(code == Some(2) && err.contains("1 job in it would have no worker"), "{err}");
    assert_eq!(json_of(&db, &["remove", "one", "--yes"])["removed"], "one");
    assert_eq!(state(&one, &job).await, Some(JobState::Ready), "its tables stay");
    assert_eq!(json_of(&db, &["add", "one", "main", "one"])["added"]["schema"], "one");
    let (migrated, _) = answer(&db, &["migrate", "--all"]);
    assert_eq!(migrated["stores"].as_array().unwrap().len(), 2, "{migrated}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn one_process_runs_jobs_of_all_stores_and_completes_a_move() {
    let db = TestDb::new().await;
    let [one, two] = with_others(&db).await;
    json_of(&db, &["place", "acme", "one"]);
    let stores = open_stores(&db);
    stores.refresh().await.unwrap();
    let mut tx = stores.of("acme").await.unwrap().begin().await.unwrap();
    let id = Do { act: Act::Ok("x".into()) }.enqueue(&mut tx).await.unwrap().id();
    tx.commit().await.unwrap();
    let old = StoreJob::new("one", id).unwrap().to_string();
    let moved = json_of(&db, &["move", "acme", "two"]);
    assert_eq!((&moved["is_over"], &moved["left"], &moved["from"]), (&false.into(), &1.into(), &"one".into()));
    assert_eq!(json_of(&db, &["moves"])["moves"][0]["to"], "two");
    assert!(run_command(&db, &["where", "acme"]).1.starts_with("two, moving from one"));
    let file = folder().join("stores.toml");
    std::fs::write(&file, format!("[stores]\nslots = 7\nlinger = '500ms'\n[stores.databases]\n{}'\n", AWAY.replace('=', " = '"))).unwrap();
    let mut run =
        super::command(CLI, &["stores", "run", "--config", file.to_str().unwrap(), "--lease-ttl", "5s", "--queue", "default,nosuch"]);
    run.envs([("DATABASE_URL", db.url.as_str()), ("QUEUE_TEND", "200ms"), ("QUEUE_GRACE", "1s")]);
    let log = std::fs::File::create(folder().join("stores.log")).unwrap();
    let mut worker = RunningCommand::start(run.stderr(Stdio::from(log)));
    eventually("the job in the old store is run", async || state(&one, &old).await == Some(JobState::Completed)).await;
    let job = enqueue(&two, Act::Ok("y".into())).await;
    eventually("and that in the other", async || state(&two, &job).await == Some(JobState::Completed)).await;
    eventually("the move has finished", async || stores.go_on("acme").await.unwrap() == MoveState::Over).await;
    // The running worker also serves a store that is added later.
    json_of(&db, &["add", "three", "main", "three", "--migrate"]);
    stores.refresh().await.unwrap();
    let three = stores.roster().get("three").unwrap();
    let job = enqueue(&three, Act::Ok("z".into())).await;
    eventually("a store that is added is worked on", async || state(&three, &job).await == Some(JobState::Completed)).await;
    // `--wait` returns after the move has finished.
    let moved = json_of(&db, &["move", "acme", "three", "--wait"]);
    assert_eq!(moved["is_over"], true);
    assert_eq!(json_of(&db, &["where", "acme"])["store"], "three");
    assert_eq!(run_command(&db, &["move", "acme", "three"]).0, Some(3));
    let drained = json_of(&db, &["drain", "three", "--to", "one", "--wait"]);
    assert_eq!((&drained["started"], &drained["moving"]), (&1.into(), &0.into()));
    assert_eq!(json_of(&db, &["where", "acme"])["store"], "one");
    assert_eq!(worker.terminate(), Some(0));
    let log = std::fs::read_to_string(folder().join("stores.log")).unwrap();
    let unused: Vec<&str> = log.lines().filter(|line| line.contains("gets no jobs")).collect();
    assert!(unused.len() == 1 && unused[0].contains("nosuch"), "{log}");
    assert!(log.contains("database unavailable") && log.contains("slots=7") && !log.contains("swordfish"), "{log}");
    let (code, message) = failed(&stores_run(&db).arg("--health").arg("127.0.0.1:0").output().unwrap());
    assert!(code == Some(2) && message.contains("--health"), "{message}");
    db.finish().await;
}

fn stores_run(db: &TestDb) -> Command {
    stores(db, &["run"])
}

#[tokio::test]
#[ignore = "deep"]
async fn a_store_of_a_second_database_works_like_any_other() {
    let (db, other) = (TestDb::new().await, TestDb::new().await);
    create_two(&db).await;
    let eu = format!("eu={}", other.url);
    let with = |arguments: &[&str]| stores(&db, arguments).env("QUEUE_DATABASES", &eu).output().unwrap();
    let added = with(&["add", "three", "eu", "queue"]);
    assert!(added.status.code() == Some(1) && text(&added.stderr).contains("stores migrate"), "it has no tables of placements yet");
    assert!(with(&["migrate"]).status.success() && with(&["add", "three", "eu", "queue"]).status.success());
    let id = Do { act: Act::Hang }.enqueue(&other.pool).await.unwrap().id();
    let shown = with(&["why", &format!("three/{id}")]);
    assert!(shown.status.success() && text(&shown.stdout).contains("the database `eu`"), "{}", text(&shown.stdout));
    let swept = with(&["cancel", "--all", "--yes"]);
    assert!(swept.status.success() && text(&swept.stdout).contains("three: cancelled 1 job"), "{}", text(&swept.stdout));
    assert_eq!(other.state(id).await, Some(JobState::Cancelled));
    // A name without a URL names the home database.
    let named = stores(&db, &["counts"]).env("QUEUE_DATABASES", format!("main {eu}")).output().unwrap();
    assert!(named.status.success(), "{}", text(&named.stderr));
    migrate::verify(&mut other.pool.acquire().await.unwrap(), Store::default()).await.unwrap();
    db.finish().await;
    other.finish().await;
}
