//! Short test scenarios (scenes), each of which provokes one kind of bug. Correct code produces no report.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use queue_core::{Queue, Store, operate::Scope};
use serde_json::json;
use sqlx::PgConnection;

use super::{
    check::{Findings, check, out_of_order},
    durable::{self, DurableScale},
    history::{self, Clock, Line},
    inject::Fault,
    limited,
    plan::Kind,
    processes::ProcessGroup,
    run::{broken, drain, effects, finals, results},
    saturate::{Load, saturate},
    server::{Database, TestServer},
    ticks,
    zombies::{race, run_zombies},
};

pub(super) const SCENES: [&str; 15] = [
    "zombies",
    "kills",
    "poison",
    "late",
    "sleep",
    "busy",
    "unreadable",
    "order",
    "ticks",
    "expiry",
    "pauses",
    "batches",
    "limits",
    "durable",
    "fleet",
];

/// Runs a scene. Returns whether the scene reported no violation. Prints one JSON object as the last line.
pub(super) async fn play(name: &str) -> Result<bool> {
    let server = TestServer::start().await?;
    let folder = results(&format!("scene-{name}-{}", std::process::id()))?;
    let reports = match name {
        "zombies" => zombies(&server).await?,
        "durable" => reports(durable::run(&server, &folder, 1, &DurableScale::scene()).await?),
        "fleet" => reports(durable::fleet(&server, &folder, 60).await?.account),
        "busy" => saturate(&server, &folder, "scene", &Load::short()).await?.reports(),
        _ => {
            let scene = Scene::new(server, folder).await?;
            match name {
                "kills" => scene.kills().await?,
                "poison" => scene.poison().await?,
                "late" => scene.late().await?,
                "sleep" => scene.sleep().await?,
                "unreadable" => scene.unreadable().await?,
                "order" => scene.order().await?,
                "ticks" => scene.ticks().await?,
                "expiry" => scene.expiry().await?,
                "pauses" => scene.pauses().await?,
                "batches" => scene.batches().await?,
                "limits" => scene.limits().await?,
                _ => bail!("unknown scene {name}"),
            }
        }
    };
    println!("{}", json!({ "scene": name, "reported": reports.len(), "reports": reports }));
    Ok(reports.is_empty())
}

fn reports(account: durable::DurableFindings) -> Vec<String> {
    let wrong = account.wrong();
    if wrong > 0 && account.notes.is_empty() { vec![format!("{account:?}")] } else { account.notes }
}

async fn zombies(server: &TestServer) -> Result<Vec<String>> {
    let database = server.database("scene").await?;
    let mut reports = race(server, &database, 2).await?;
    if reports.is_empty() {
        let seen = run_zombies(server, &server.database("haunted").await?, 8).await?;
        reports.extend((0..seen.accepted).map(|i| seen.notes.get(i).cloned().unwrap_or_else(|| "stale write accepted".to_owned())));
    }
    Ok(reports)
}

struct Scene {
    server: TestServer,
    database: Database,
    folder: PathBuf,
    clock: Clock,
}

impl Scene {
    async fn new(server: TestServer, folder: PathBuf) -> Result<Self> {
        let database = server.database("scene").await?;
        Ok(Self { server, database, folder, clock: Clock::new() })
    }

    async fn processes(&self, workers: usize, settings: &[(&str, &str)]) -> Result<ProcessGroup> {
        Ok(ProcessGroup::new(&self.server, &self.database, &self.folder, workers).await?.with(settings))
    }

    async fn enqueue(&self, connection: &mut PgConnection, from: i64, to: i64, ms: i64, act: &str) -> Result<()> {
        const ENQUEUE: &str = "select queue.enqueue('chaos', jsonb_build_object('n', n, 'ms', $3, 'act', $4),
                '{\"queue\": \"chaos\", \"max_attempts\": 1000}')
           from generate_series($1, $2) n";
        sqlx::query(ENQUEUE).bind(from).bind(to).bind(ms).bind(act).execute(connection).await?;
        Ok(())
    }

    /// Stops the workers and checks the history. Returns the findings, and a report for each violation. The caller has received
    /// acknowledgements for the enqueues of jobs 1 to `acked`, and has attempted to enqueue jobs 1 to `attempted`.
    async fn conclude(
        &self,
        processes: &ProcessGroup,
        drained: bool,
        acked: u64,
        attempted: u64,
        faults: &[Fault],
    ) -> Result<(Findings, Vec<String>)> {
        processes.stop_all();
        let mut entries = history::read(&self.folder)?;
        let lines = (1..=attempted).map(Line::Attempted).chain((1..=acked).map(Line::Acked));
        entries.splice(0..0, lines.map(|line| history::Entry { at: 0, who: String::new(), line }));
        let found = check(&entries, faults, &finals(&self.database).await?);
        let mut reports = found.notes.clone();
        let broken = broken(&self.database).await?;
        if broken > 0 {
            reports.push(format!("{broken} jobs do not have exactly one entry"));
        }
        if !drained {
            reports.push("unfinished jobs remain".to_owned());
        }
        Ok((found, reports))
    }

    /// Kills workers while jobs run.
    async fn kills(&self) -> Result<Vec<String>> {
        let processes = self.processes(2, &[("CHAOS_TTL_MS", "1000"), ("CHAOS_CONCURRENCY", "5")]).await?;
        processes.start_all()?;
        let mut connection = self.database.pool.acquire().await?;
        self.enqueue(&mut connection, 1, 20, 400, "Wait").await?;
        self.enqueue(&mut connection, 21, 40, 400, "Enter").await?;
        let mut faults = Vec::new();
        for slot in [0, 1] {
            tokio::time::sleep(Duration::from_millis(900)).await;
            let (who, from) = (processes.label(slot), self.clock.now());
            processes.kill(slot);
            faults.push(Fault { kind: Kind::Kill, who, from, until: from, held: Vec::new(), quiet: None });
            processes.start(slot)?;
        }
        let drained = drain(&self.database, Duration::from_secs(30)).await?;
        let mut reports = self.conclude(&processes, drained, 40, 40, &faults).await?.1;
        let effects = effects(&self.database).await?;
        if effects.duplicate + effects.missing > 0 {
            reports.push(format!("{} effects are duplicated, {} are missing", effects.duplicate, effects.missing));
        }
        Ok(reports)
    }

    /// Runs one job that repeatedly crashes its process, together with ten jobs that complete.
    async fn poison(&self) -> Result<Vec<String>> {
        const MOST: usize = 3;
        let processes = self.processes(1, &[("CHAOS_TTL_MS", "1000")]).await?;
        let mut connection = self.database.pool.acquire().await?;
        self.enqueue(&mut connection, 1, 1, 0, "Abort").await?;
        self.enqueue(&mut connection, 2, 11, 50, "Wait").await?;
        let (mut faults, until) = (Vec::new(), Instant::now() + Duration::from_secs(40));
        let mut drained = false;
        while !drained && faults.len() <= MOST && Instant::now() < until {
            processes.start_all()?;
            drained = drain(&self.database, Duration::from_millis(100)).await?;
            let (who, from) = (processes.label(0), self.clock.now());
            if processes.reap() > 0 {
                faults.push(Fault { kind: Kind::Kill, who, from, until: from, held: Vec::new(), quiet: None });
            }
        }
        let (found, mut reports) = self.conclude(&processes, drained, 11, 11, &faults).await?;
        if faults.len() > MOST {
            reports.push(format!("a job has aborted {} processes, and is not dead", faults.len()));
        } else if (found.completed, found.dead) != (10, 1) {
            reports.push(format!("{} of 10 other jobs completed, {} dead letters instead of 1", found.completed, found.dead));
        }
        Ok(reports)
    }

    /// Commits a job after workers have claimed later jobs.
    async fn late(&self) -> Result<Vec<String>> {
        let processes = self.processes(1, &[]).await?;
        processes.start_all()?;
        let mut open = self.database.pool.begin().await?;
        self.enqueue(&mut open, 1, 1, 1, "Wait").await?;
        for n in 2..=6 {
            self.enqueue(&mut *self.database.pool.acquire().await?, n, n, 1, "Wait").await?;
            drain(&self.database, Duration::from_secs(10)).await?;
        }
        open.commit().await?;
        let drained = drain(&self.database, Duration::from_secs(8)).await?;
        Ok(self.conclude(&processes, drained, 6, 6, &[]).await?.1)
    }

    /// Commits a job after a worker has announced that it is idle. The job was enqueued with a snapshot that does not contain the
    /// announcement.
    async fn sleep(&self) -> Result<Vec<String>> {
        let processes = self.processes(1, &[("CHAOS_POLL_MS", "30000")]).await?;
        let mut drained = true;
        for n in 1..=2 {
            let mut open = self.database.pool.begin().await?;
            self.enqueue(&mut open, n, n, 1, "Wait").await?;
            processes.start_all()?;
            let until = Instant::now() + Duration::from_secs(10);
            while self.database.count("select count(*) from queue.idle").await? == 0 && Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::time::sleep(Duration::from_millis(700)).await;
            open.commit().await?;
            drained &= drain(&self.database, Duration::from_secs(5)).await?;
            processes.stop_all();
        }
        Ok(self.conclude(&processes, drained, 2, 2, &[]).await?.1)
    }

    /// Runs twenty jobs, and another job whose payload cannot be deserialized.
    async fn unreadable(&self) -> Result<Vec<String>> {
        // Creates a job with a payload that a regular enqueue would reject.
        const BAD: &str = r#"
            select queue.enqueue('chaos', '{"n": 21, "ms": 0, "act": "Wait"}', '{"queue": "chaos"}');
            update queue.job set payload = jsonb_set(payload, '{ms}', '1e400') where payload ->> 'n' = '21'"#;
        let processes = self.processes(1, &[]).await?;
        let mut open = self.database.pool.begin().await?;
        sqlx::raw_sql(BAD).execute(&mut *open).await?;
        self.enqueue(&mut open, 1, 20, 1, "Wait").await?;
        open.commit().await?;
        processes.start_all()?;
        let drained = drain(&self.database, Duration::from_secs(10)).await?;
        let (found, mut reports) = self.conclude(&processes, drained, 20, 21, &[]).await?;
        if found.dead != 1 {
            reports.push(format!("{} dead letters instead of 1", found.dead));
        }
        Ok(reports)
    }

    /// Commits the first job of each key while the second job is being enqueued.
    async fn order(&self) -> Result<Vec<String>> {
        const KEYS: i64 = 5;
        let processes = self.processes(2, &[]).await?;
        processes.start_all()?;
        let mut open = self.database.pool.begin().await?;
        for key in 1..=KEYS {
            self.enqueue_under(&mut open, key, 2 * key - 1).await?;
        }
        let seconds = async {
            let mut connection = self.database.pool.acquire().await?;
            for key in 1..=KEYS {
                self.enqueue_under(&mut connection, key, 2 * key).await?;
            }
            anyhow::Ok(())
        };
        let firsts = async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            Ok(open.commit().await?)
        };
        tokio::try_join!(seconds, firsts)?;
        let drained = drain(&self.database, Duration::from_secs(10)).await?;
        let last = 2 * KEYS.cast_unsigned();
        let mut reports = self.conclude(&processes, drained, last, last, &[]).await?.1;
        reports.extend(out_of_order(&history::read(&self.folder)?, |n| n.div_ceil(2)));
        Ok(reports)
    }

    /// Runs many schedules, and stops one of the workers temporarily.
    async fn ticks(&self) -> Result<Vec<String>> {
        let processes = self.processes(3, &[("CHAOS_TTL_MS", "1000"), ("CHAOS_DECLARES", "true")]).await?;
        ticks::make(&self.database, 30).await?;
        processes.start_all()?;
        let span = Duration::from_secs(2);
        for signal in ["STOP", "CONT"] {
            tokio::time::sleep(span).await;
            processes.signal(0, signal);
        }
        tokio::time::sleep(span).await;
        let ticks = ticks::account(&self.database).await?;
        let drained = drain(&self.database, Duration::from_secs(10)).await?;
        let mut reports = self.conclude(&processes, drained, 0, 0, &[]).await?.1;
        if ticks.wrong() > 0 {
            reports.push(format!("{ticks:?}"));
        }
        Ok(reports)
    }

    /// Tests start deadlines with three kinds of jobs. Some jobs run past the deadline, some are claimed but do not start in time, and
    /// some expire before the worker starts.
    async fn expiry(&self) -> Result<Vec<String>> {
        let processes = self.processes(1, &[("CHAOS_CONCURRENCY", "2")]).await?;
        let mut connection = self.database.pool.acquire().await?;
        self.enqueue_for(&mut connection, 1, 5, 10, "300 ms").await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        processes.start_all()?;
        self.enqueue_for(&mut connection, 6, 25, 2500, "1500 ms").await?;
        let drained = drain(&self.database, Duration::from_secs(20)).await?;
        let (found, mut reports) = self.conclude(&processes, drained, 25, 25, &[]).await?;
        if found.completed < 2 || found.expired < 5 {
            reports.push(format!("{} have run, {} have expired", found.completed, found.expired));
        }
        Ok(reports)
    }

    async fn enqueue_for(&self, connection: &mut PgConnection, from: i64, to: i64, ms: i64, wait: &str) -> Result<()> {
        const ENQUEUE: &str = "select queue.enqueue('chaos', jsonb_build_object('n', n, 'ms', $3, 'act', 'Wait'),
                jsonb_build_object('queue', 'chaos', 'expires_in', $4::text))
           from generate_series($1, $2) n";
        sqlx::query(ENQUEUE).bind(from).bind(to).bind(ms).bind(wait).execute(connection).await?;
        Ok(())
    }

    /// Pauses the queue while jobs run.
    async fn pauses(&self) -> Result<Vec<String>> {
        let processes = self.processes(2, &[("CHAOS_CONCURRENCY", "3")]).await?;
        self.enqueue(&mut *self.database.pool.acquire().await?, 1, 200, 50, "Wait").await?;
        processes.start_all()?;
        while self.database.count("select count(*) from queue.done_many").await? == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (pool, store, scope, from) = (&self.database.pool, Store::default(), Scope::queue("chaos"), self.clock.now());
        Queue::new(pool).store(store).pause(&scope).await?;
        Queue::new(pool).store(store).until_paused(&scope).await?;
        let quiet = Some(self.clock.now());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let fault = Fault { kind: Kind::Pause, who: String::new(), from, until: self.clock.now(), held: Vec::new(), quiet };
        Queue::new(pool).store(store).resume(&scope).await?;
        let drained = drain(&self.database, Duration::from_secs(20)).await?;
        Ok(self.conclude(&processes, drained, 200, 200, &[fault]).await?.1)
    }

    /// Runs 30 batch jobs, one of which fails every batch that contains it.
    async fn batches(&self) -> Result<Vec<String>> {
        const ENQUEUE: &str =
            "select queue.enqueue('chaos_batch', jsonb_build_object('n', n, 'ms', 1, 'act', case n when 7 then 'Poison' else 'Wait' end),
                '{\"queue\": \"chaos\"}')
           from generate_series(1, 30) n";
        let processes = self.processes(1, &[]).await?;
        sqlx::query(ENQUEUE).execute(&self.database.pool).await?;
        processes.start_all()?;
        let drained = drain(&self.database, Duration::from_secs(20)).await?;
        let (found, mut reports) = self.conclude(&processes, drained, 30, 30, &[]).await?;
        if (found.completed, found.poison) != (29, 1) {
            reports.push(format!("{} of 29 other jobs completed, {} dead letters of poison jobs", found.completed, found.poison));
        }
        Ok(reports)
    }

    /// Crashes the server right after jobs have started under a limit, before another commit has flushed their claim to disk.
    async fn limits(&self) -> Result<Vec<String>> {
        const ROUNDS: u64 = 3;
        const JOBS: u64 = 6;
        const ENQUEUE: &str = "select queue.enqueue('chaos', jsonb_build_object('n', 8 * n, 'ms', 4000, 'act', 'Wait'),
                '{\"queue\": \"chaos_limited\", \"max_attempts\": 1000}')
           from generate_series($1::bigint, $2) n";
        limited::set(&self.database).await?;
        let processes = self.processes(2, &[]).await?;
        processes.start_all()?;
        let mut faults = Vec::new();
        for round in 0..ROUNDS {
            let begun = || anyhow::Ok(limited::check(&history::read(&self.folder)?, &[]).begun[0]);
            let (before, until) = (begun()?, Instant::now() + Duration::from_secs(10));
            let (first, last) = ((round * JOBS + 1).cast_signed(), ((round + 1) * JOBS).cast_signed());
            sqlx::query(ENQUEUE).bind(first).bind(last).execute(&self.database.pool).await?;
            while begun()? == before && Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let from = self.clock.now();
            self.server.kill()?;
            self.server.restart().await?;
            faults.push(Fault { kind: Kind::Server, who: String::new(), from, until: self.clock.now(), held: Vec::new(), quiet: None });
            drain(&self.database, Duration::from_secs(20)).await?;
        }
        let drained = drain(&self.database, Duration::from_secs(1)).await?;
        let mut reports = self.conclude(&processes, drained, 0, 8 * ROUNDS * JOBS, &faults).await?.1;
        let violations = limited::check(&history::read(&self.folder)?, &faults);
        if violations.begun[0] < usize::try_from(ROUNDS * JOBS)? {
            reports.push(format!("{} of {} jobs started under the limit", violations.begun[0], ROUNDS * JOBS));
        }
        reports.extend(violations.notes);
        Ok(reports)
    }

    async fn enqueue_under(&self, connection: &mut PgConnection, key: i64, n: i64) -> Result<()> {
        const ENQUEUE: &str = "select queue.enqueue_with('chaos', jsonb_build_object('n', $1, 'ms', 1500, 'act', 'Wait'),
                jsonb_build_object('queue', 'chaos', 'key', $2::text))";
        sqlx::query(ENQUEUE).bind(n).bind(key.to_string()).execute(connection).await?;
        Ok(())
    }
}
