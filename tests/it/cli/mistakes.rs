//! Tests operator mistakes. For each mistake the CLI must return the expected exit code and describe the failure and its remedy.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpListener,
    process::Output,
    str::FromStr as _,
    thread,
};

use queue_core::Job as _;
use sqlx::{AssertSqlSafe, ConnectOptions as _, postgres::PgConnectOptions};
use tests::{Act, Do, TestDb, protocol};

use super::{CLI, command, enqueue, on, text};

mod operations;
mod changes;
mod connect;
mod cron;
mod jobs;
mod limits;
mod lists;
mod pauses;
mod rights;
mod run;
mod stores;

/// Test case: a command line, the expected exit code, and the texts that the output must contain. The texts are separated by ` | `.
/// `{name}` stands for a value of the [`Fixture`].
type Row = (&'static str, i32, &'static str);

/// All tables of test cases.
const TABLES: [&[Row]; 18] = [
    operations::ROWS,
    changes::ROWS,
    connect::ADDRESSES,
    connect::SCHEMAS,
    cron::ADD,
    cron::TICKS,
    jobs::ENQUEUE,
    jobs::FOLLOW,
    jobs::SHOW,
    limits::ROWS,
    lists::FIGURES,
    lists::LIST,
    pauses::PAUSES,
    pauses::SHARES,
    run::HELP,
    run::RUN,
    stores::PLACES,
    stores::WORK,
];

/// SQL that creates two schemas, which look like stores of an older and a newer release.
const OTHER_RELEASES: &str = "create schema older; create table older.migration as select * from queue.migration where version <= 20;
    create schema newer; create table newer.migration as select * from queue.migration;
    insert into newer.migration values (9999, 'later', 1, 9999, now())";

/// Database with jobs in several states, and the values of the placeholders in command lines.
struct Fixture {
    db: TestDb,
    names: BTreeMap<&'static str, String>,
    _taken: TcpListener,
}

impl Fixture {
    async fn new() -> Self {
        let db = TestDb::new().await;
        let [done, dead] = [enqueue(&db, Act::Ok("x".into())).await, enqueue(&db, Act::Terminal("no way".into())).await];
        db.run_until_idle(db.worker()).await;
        let on_slow = Do { act: Act::Hang }.enqueue(&db.pool).queue("slow").await.unwrap().id();
        let mut connection = db.pool.acquire().await.unwrap();
        let worker = protocol::register(&mut connection).await.unwrap();
        assert_eq!(protocol::claim(&mut connection, worker, 1).await.unwrap().ids(), [on_slow]);
        drop(connection);
        let gone = enqueue(&db, Act::Hang).await;
        assert_eq!(on(&db, &["cancel", &gone.to_string()]).status.code(), Some(0));
        let ready = enqueue(&db, Act::Hang).await;
        let later = std::time::Duration::from_hours(1);
        let sched = Do { act: Act::Hang }.enqueue(&db.pool).after(later).await.unwrap().id();
        let other: i64 = sqlx::query_scalar("select queue.enqueue('nosuchtype', '{}')").fetch_one(&db.pool).await.unwrap();
        let jobs = [("run", on_slow), ("done", done), ("dead", dead), ("gone", gone), ("ready", ready), ("sched", sched)];
        let mut names: BTreeMap<&str, String> = jobs.map(|(name, id)| (name, id.to_string())).into();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = [("other", other.to_string()), ("long", "x".repeat(1100)), ("taken", taken.local_addr().unwrap().to_string())];
        names.extend(own.into_iter().chain(addresses(&db.url)));
        names.insert("nopass", refusing("28P01", "password authentication failed for user \"u\""));
        names.insert("noentry", refusing("28000", "no pg_hba.conf entry for host \"127.0.0.1\", user \"u\", database \"d\""));
        let fixture = Self { db, names, _taken: taken };
        fixture.run(OTHER_RELEASES).await;
        fixture
    }

    async fn run(&self, statement: &str) {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&self.db.pool).await.unwrap();
    }

    /// Replaces the placeholders in a text.
    fn fill_in(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }

    fn answer(&self, url: &str, line: &str) -> Output {
        let arguments: Vec<String> = arguments(line).iter().map(|argument| self.fill_in(argument)).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        command(CLI, &arguments).env("DATABASE_URL", url).output().unwrap()
    }

    /// Runs the test cases in order. Panics with a list of all cases that have an unexpected result.
    fn play(&self, url: &str, rows: &[Row]) {
        let wrong: Vec<String> = rows.iter().filter_map(|row| self.fault(url, row)).collect();
        assert!(wrong.is_empty(), "{} of {} answers are other ones:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    }

    fn fault(&self, url: &str, (line, code, expected): &Row) -> Option<String> {
        let output = self.answer(url, line);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        // Errors are printed on stderr, except by `why` and `doctor`, which print them as their result. A command with exit code 3 may also
        // print to stdout, because an operation may succeed for some of several jobs.
        let is_answer = *code == 0 || ["why", "doctor", "stores why"].iter().any(|command| line.starts_with(command));
        let printed = if is_answer { format!("{out}{err}") } else { err.to_owned() };
        let has_words = expected.split(" | ").all(|words| printed.contains(&self.fill_in(words)));
        // Messages must not contain the default binary name, clap's suggestion to use `--`, or a panic message.
        let is_foreign = printed.contains("queue-worker ")
            || printed.contains("use '-- -")
            || printed.contains("panicked")
            || printed.contains("RUST_BACKTRACE");
        let is_right = output.status.code() == Some(*code) && has_words && !is_foreign && (is_answer || *code == 3 || out.is_empty());
        (!is_right).then(|| format!("{line}\n    wanted {code}: {expected}\n    was {:?}: {out}{err}", output.status.code()))
    }
}

/// Returns named database URLs. A connection with each URL fails for a different reason.
fn addresses(url: &str) -> impl Iterator<Item = (&'static str, String)> {
    let options = PgConnectOptions::from_str(url).unwrap();
    let with = |parameter: &str| format!("{url}{}{parameter}", if url.contains('?') { "&" } else { "?" });
    let to = |options: PgConnectOptions| options.to_url_lossy().to_string();
    [
        ("nodb", to(options.clone().database("nosuchdb"))),
        ("nouser", to(options.username("nosuchuser"))),
        ("refused", "postgres://u@127.0.0.1:1/d".to_owned()),
        ("mode", with("sslmode=maybe")),
        ("attrs", with("target_session_attrs=primry")),
        ("root", with("sslmode=verify-ca&sslrootcert=/nofile")),
        ("unknown", with("nonsense=1")),
    ]
    .into_iter()
}

/// Starts a server that rejects every login with the given SQLSTATE and message. Returns the server's URL.
fn refusing(code: &str, message: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("postgres://u:p@{}/d?sslmode=disable", listener.local_addr().unwrap());
    let fields = format!("SFATAL\0VFATAL\0C{code}\0M{message}\0\0");
    thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            // The startup packet is ignored, because the response is always the same.
            let _ = client.read(&mut [0; 1024]);
            let length = u32::try_from(fields.len() + 4).unwrap();
            client.write_all(&[&b"E"[..], &length.to_be_bytes(), fields.as_bytes()].concat()).unwrap();
        }
    });
    address
}

/// Splits a line into arguments. Text in single quotes is one argument.
fn arguments(line: &str) -> Vec<String> {
    let (mut words, mut is_quoted) = (vec![None::<String>], false);
    for letter in line.chars() {
        match letter {
            '\'' => {
                is_quoted = !is_quoted;
                words.last_mut().unwrap().get_or_insert_default();
            }
            ' ' if !is_quoted => words.push(None),
            _ => words.last_mut().unwrap().get_or_insert_default().push(letter),
        }
    }
    words.into_iter().flatten().collect()
}

#[test]
fn every_command_has_the_mistakes_that_are_made_with_it() {
    let commands = |arguments: &[&str]| -> Vec<String> {
        let output = command(CLI, &[arguments, &["--help"]].concat()).output().unwrap();
        let help = text(&output.stdout).split_once("\nCommands:\n").unwrap().1.to_owned();
        let lines = help.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
        lines.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    };
    for (above, least) in [(&[][..], 10), (&["cron"], 3), (&["limits"], 3), (&["stores"], 3)] {
        // `conformance` passes its arguments to another program.
        for name in commands(above).iter().filter(|name| *name != "help" && *name != "conformance") {
            let begin = [above, &[name.as_str()]].concat().join(" ");
            let count =
                TABLES.iter().flat_map(|rows| rows.iter()).filter(|row| format!("{} ", row.0).starts_with(&format!("{begin} "))).count();
            assert!(count >= least, "{begin}: {count} mistakes, and at least {least} are to be played");
        }
    }
}
