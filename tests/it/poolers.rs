//! Tests real poolers in front of the database. Covers the features that work behind each pooler, and the features that are rejected
//! immediately.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    time::{Duration, Instant},
};

use queue_core::{
    Context, Handler, Job as _, JobResult, Queue, job,
    operate::{Filter, Operation},
    runner::ListenerConnection,
};
use queue_worker::{Database, Error, Worker};
use serde::{Deserialize, Serialize};
use sqlx::{ConnectOptions as _, postgres::PgConnectOptions};
use tests::{
    pgbouncer::{PgBouncer, Pooling, carries_prepared},
    server::{self, TestServer},
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

/// Job that returns its payload.
#[job(name = "echo", output = String)]
#[derive(Serialize, Deserialize)]
struct Echo {
    text: String,
}

impl Handler for Echo {
    async fn run(self, _: &Context) -> JobResult<String> {
        Ok(self.text)
    }
}

fn echo(text: impl Into<String>) -> Echo {
    Echo { text: text.into() }
}

/// Starts a server that logs each statement.
async fn server() -> (TestServer, server::Database) {
    let server = TestServer::start_with(&["log_statement=all"]).await.unwrap();
    let database = server.database("pooled").await.unwrap();
    (server, database)
}

/// Counts the LISTEN statements in the server's log. Excludes the check for session pooling, whose channel name is a UUID.
fn listened(server: &TestServer) -> usize {
    let log = BufReader::new(File::open(server.log()).unwrap());
    let is_lasting = |line: &String| {
        let line = line.to_lowercase();
        line.split_once("statement: listen \"").is_some_and(|(_, name)| name.matches('-').count() != 4)
    };
    log.lines().map_while(Result::ok).filter(is_lasting).count()
}

fn options(url: &str) -> PgConnectOptions {
    url.parse::<PgConnectOptions>().unwrap().extra_float_digits(None).disable_statement_logging()
}

/// Runs a worker while `test` runs.
async fn beside<T>(worker: Worker, test: impl Future<Output = T>) -> T {
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(worker.register::<Echo>().run(async move { drop(stopped.await) }));
    let value = test.await;
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    value
}

#[tokio::test]
#[ignore = "deep"]
async fn whether_listening_is_possible_is_known_before_the_first_listener() {
    let (server, _database) = server().await;
    assert!(ListenerConnection::open(options(&server.url("pooled"))).await.unwrap().keeps_session, "the server itself");
    for (pooling, settings, keeps) in [
        (Pooling::Sessions, &[][..], true),
        (Pooling::Transactions, &[], false),
        (Pooling::Transactions, &["server_round_robin = 1"], false),
        (Pooling::Transactions, &["ignore_startup_parameters = options,extra_float_digits"], false),
        (Pooling::Sessions, &["ignore_startup_parameters = options,extra_float_digits"], true),
    ] {
        let Some(pooler) = PgBouncer::start("who may listen", server.port(), pooling, settings).await else { return };
        for _ in 0..3 {
            let found = ListenerConnection::open(options(&pooler.url("pooled"))).await.unwrap();
            assert_eq!(found.keeps_session, keeps, "{pooling:?} {settings:?}");
        }
        pooler.end().await;
    }
    assert_eq!(listened(&server), 0);
}

/// Starts a proxy that distributes connections alternately between two ports. Returns the proxy's port.
async fn in_turn(ports: [u16; 2]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        for to in ports.into_iter().cycle() {
            let (mut client, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

/// Connections alternate between two poolers, so the second connection of the check for session pooling may reach the other pooler. The
/// listener may then keep its session by chance, which does not prove that sessions are stable.
#[tokio::test]
#[ignore = "deep"]
async fn poolers_side_by_side_are_judged_separately() {
    let (server, _database) = server().await;
    for (pooling, keeps) in [(Pooling::Transactions, false), (Pooling::Sessions, true)] {
        let start = || PgBouncer::start("poolers side by side", server.port(), pooling, &[]);
        let (Some(one), Some(two)) = (start().await, start().await) else { return };
        let both = in_turn([one.port(), two.port()]).await;
        for _ in 0..6 {
            let found = ListenerConnection::open(options(&server::url(both, "pooled"))).await.unwrap();
            assert_eq!(found.keeps_session, keeps, "{pooling:?}");
        }
        one.end().await;
        two.end().await;
    }
    assert_eq!(listened(&server), 0);
}

#[tokio::test]
#[ignore = "deep"]
async fn behind_a_session_pooler_everything_works() {
    let (server, _database) = server().await;
    let Some(pooler) = PgBouncer::start("a pooler of sessions", server.port(), Pooling::Sessions, &[]).await else { return };
    let through = Database::connect(&pooler.url("pooled")).await.unwrap();
    beside(Worker::new(through.pool().clone()), async {
        let queue = through.queue();
        for _ in 0..20 {
            let job = echo("x").enqueue(through.pool()).await.unwrap();
            assert_eq!(job.wait(&queue).timeout(Duration::from_secs(20)).await.unwrap(), "x");
        }
    })
    .await;
    assert_eq!(listened(&server), 2, "a worker, and one who waits");
    through.close().await;
    pooler.end().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn behind_a_pooler_without_prepared_statements_a_worker_does_not_start() {
    let (server, database) = server().await;
    let settings: &[&str] = if carries_prepared() { &["max_prepared_statements = 0"] } else { &[] };
    let pooler = PgBouncer::start("a pooler that mixes statements up", server.port(), Pooling::Transactions, settings).await;
    let Some(pooler) = pooler else { return };
    let through = Database::connect(&pooler.url("pooled")).await.unwrap();
    let refused = Worker::new(through.pool().clone()).register::<Echo>().run(std::future::pending()).await.unwrap_err();
    assert!(matches!(refused, Error::Pooler), "{refused}");
    for word in ["max_prepared_statements", "pool_mode = session", "QUEUE_DIRECT_URL"] {
        assert!(refused.to_string().contains(word), "{refused}");
    }
    through.close().await;
    // With a direct connection, the worker runs jobs. Statements that require a direct connection do not go through the pooler.
    let both = Database::options().url(pooler.url("pooled")).direct_url(server.url("pooled")).connect().await.unwrap();
    beside(Worker::new(both.pool().clone()).direct(both.direct()), async {
        let job = echo("y").enqueue(&database.pool).await.unwrap();
        assert_eq!(job.wait(&both.queue()).timeout(Duration::from_secs(20)).await.unwrap(), "y");
    })
    .await;
    both.close().await;
    pooler.end().await;
}

/// The environment variable `QUEUE_TEST_CALLS` sets the number of calls, for example to 100000.
#[tokio::test]
#[ignore = "deep"]
async fn producers_and_waiters_behind_a_transaction_pooler_never_fail_and_never_listen() {
    let calls: u32 = std::env::var("QUEUE_TEST_CALLS").ok().and_then(|value| value.parse().ok()).unwrap_or(1600);
    let what = "producers behind a pooler of transactions";
    if !carries_prepared() {
        return tests::skipped(what, "there is no PgBouncer that keeps prepared statements apart, which 1.21 does");
    }
    let (server, _database) = server().await;
    let settings = ["max_prepared_statements = 200"];
    let Some(pooler) = PgBouncer::start(what, server.port(), Pooling::Transactions, &settings).await else { return };
    let both = Database::options().url(pooler.url("pooled")).direct_url(server.url("pooled")).connect().await.unwrap();
    let began = Instant::now();
    beside(Worker::new(both.pool().clone()).direct(both.direct()), async {
        let callers = (0..8).map(|n| {
            let pool = both.pool().clone();
            // Every second client also waits through the pooler. No notification arrives through the pooler, so the waiter polls four
            // times a second.
            let (queue, calls) = if n % 2 == 0 { (both.queue(), calls / 4) } else { (Queue::new(&pool), calls / 100) };
            tokio::spawn(async move {
                for call in 0..calls {
                    let job = echo(format!("{n} {call}"));
                    let mut tx = pool.begin().await.unwrap();
                    let job = job.enqueue(&mut tx).await.unwrap();
                    tx.commit().await.unwrap();
                    let job = job.wait(&queue).timeout(Duration::from_secs(30)).await.unwrap();
                    assert_eq!(job, format!("{n} {call}"));
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
    })
    .await;
    println!("{calls} calls in {:.1?}", began.elapsed());
    assert_eq!(listened(&server), 5, "the worker and four who wait, past the pooler");
    both.close().await;
    pooler.end().await;
}

/// The server parses and executes an unnamed statement in two steps. Between the steps, the pooler must not run another client's
/// statement on the same server connection.
#[tokio::test]
#[ignore = "deep"]
async fn lists_and_counts_behind_a_transaction_pooler_do_not_mix_clients() {
    let what = "lists behind a pooler of transactions";
    if !carries_prepared() {
        return tests::skipped(what, "there is no PgBouncer that keeps prepared statements apart, which 1.21 does");
    }
    let (server, database) = server().await;
    let settings = ["max_prepared_statements = 200", "default_pool_size = 2"];
    let Some(pooler) = PgBouncer::start(what, server.port(), Pooling::Transactions, &settings).await else { return };
    for n in 0..20 {
        echo(n.to_string()).enqueue(&database.pool).queue(["even", "odd"][n % 2]).await.unwrap();
    }
    let through = Database::options().url(pooler.url("pooled")).direct_url(server.url("pooled")).pool_size(8).connect().await.unwrap();
    let readers = (0..8).map(|n| {
        let pool = through.pool().clone();
        tokio::spawn(async move {
            let filter = Filter { queue: Some(["even", "odd", "none"][n % 3].to_owned()), ..Filter::default() };
            let all = if n % 3 == 2 { 0 } else { 10 };
            for _ in 0..100 {
                let mut page = Queue::new(&pool).jobs().matching(&filter).list().await.unwrap();
                assert_eq!(page.jobs.len(), all);
                Queue::new(&pool).add_failures(&mut page.jobs).await.unwrap();
                let counted = Queue::new(&pool).jobs().matching(&filter).apply(Operation::Cancel).count().await.unwrap();
                assert_eq!(counted, all as u64);
            }
        })
    });
    for reader in readers.collect::<Vec<_>>() {
        reader.await.unwrap();
    }
    through.close().await;
    pooler.end().await;
}
