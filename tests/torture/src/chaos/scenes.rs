//! Short schedules, each of which provokes one sort of bug. On a sound product nothing is reported.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use queue_core::{
    Store,
    operate::{self, Scope},
};
use serde_json::json;
use sqlx::PgConnection;

use super::{
    check::{Findings, check, out_of_order},
    crew::Crew,
    durable::{self, Size},
    history::{self, Clock, Line},
    inject::Fault,
    limited,
    plan::Kind,
    run::{broken, drain, effects, finals, results},
    saturate::{Load, saturate},
    server::{Database, TestServer},
    ticks,
    zombies::{haunt, race},
};

/// All of them.
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

/// Plays one; returns whether there was nothing to report. The last line printed is one JSON object.
pub(super) async fn play(name: &str) -> Result<bool> {
    let server = TestServer::start().await?;
    let folder = results(&format!("scene-{name}-{}", std::process::id()))?;
    let reports = match name {
        "zombies" => zombies(&server).await?,
        "durable" => reports(durable::run(&server, &folder, 1, &Size::scene()).await?),
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
                _ => bail!("no scene {name}"),
            }
        }
    };
    println!("{}", json!({ "scene": name, "reported": reports.len(), "reports": reports }));
    Ok(reports.is_empty())
}

/// What it noted, or how much it counted.
fn reports(account: durable::Account) -> Vec<String> {
    let wrong = account.wrong();
    if wrong > 0 && account.notes.is_empty() { vec![format!("{account:?}")] } else { account.notes }
}

async fn zombies(server: &TestServer) -> Result<Vec<String>> {
    let database = server.database("scene").await?;
    let mut reports = race(server, &database, 2).await?;
    if reports.is_empty() {
        let seen = haunt(server, &server.database("haunted").await?, 8).await?;
        reports.extend((0..seen.accepted).map(|i| seen.notes.get(i).cloned().unwrap_or_else(|| "stale write accepted".to_owned())));
    }
    Ok(reports)
}

/// A database, and workers to be started.
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

    async fn crew(&self, workers: usize, settings: &[(&str, &str)]) -> Result<Crew> {
        Ok(Crew::new(&self.server, &self.database, &self.folder, workers).await?.with(settings))
    }

    /// Enqueues the jobs of these numbers.
    async fn enqueue(&self, connection: &mut PgConnection, from: i64, to: i64, ms: i64, act: &str) -> Result<()> {
        const ENQUEUE: &str = "select queue.enqueue('chaos', jsonb_build_object('n', n, 'ms', $3, 'act', $4),
                '{\"queue\": \"chaos\", \"max_attempts\": 1000}')
           from generate_series($1, $2) n";
        sqlx::query(ENQUEUE).bind(from).bind(to).bind(ms).bind(act).execute(connection).await?;
        Ok(())
    }

    /// What is wrong once the workers have stopped; numbers up to `acked` were acknowledged, and up to `attempted` may be there.
    async fn conclude(&self, crew: &Crew, drained: bool, acked: u64, attempted: u64, faults: &[Fault]) -> Result<(Findings, Vec<String>)> {
        crew.stop_all();
        let mut entries = history::read(&self.folder)?;
        let lines = (1..=attempted).map(Line::Attempted).chain((1..=acked).map(Line::Acked));
        entries.splice(0..0, lines.map(|line| history::Entry { at: 0, who: String::new(), line }));
        let found = check(&entries, faults, &finals(&self.database).await?);
        let mut reports = found.notes.clone();
        let broken = broken(&self.database).await?;
        if broken > 0 {
            reports.push(format!("{broken} jobs have not exactly one entry"));
        }
        if !drained {
            reports.push("jobs are left that nobody runs".to_owned());
        }
        Ok((found, reports))
    }

    /// Workers are killed in the middle of their jobs.
    async fn kills(&self) -> Result<Vec<String>> {
        let crew = self.crew(2, &[("CHAOS_TTL_MS", "1000"), ("CHAOS_CONCURRENCY", "5")]).await?;
        crew.start_all()?;
        let mut connection = self.database.pool.acquire().await?;
        self.enqueue(&mut connection, 1, 20, 400, "Wait").await?;
        self.enqueue(&mut connection, 21, 40, 400, "Enter").await?;
        let mut faults = Vec::new();
        for slot in [0, 1] {
            tokio::time::sleep(Duration::from_millis(900)).await;
            let (who, from) = (crew.label(slot), self.clock.now());
            crew.kill(slot);
            faults.push(Fault { kind: Kind::Kill, who, from, until: from, held: Vec::new(), quiet: None });
            crew.start(slot)?;
        }
        let drained = drain(&self.database, Duration::from_secs(30)).await?;
        let mut reports = self.conclude(&crew, drained, 40, 40, &faults).await?.1;
        let effects = effects(&self.database).await?;
        if effects.duplicate + effects.missing > 0 {
            reports.push(format!("{} effects are there twice, {} are missing", effects.duplicate, effects.missing));
        }
        Ok(reports)
    }

    /// One job ends its process, again and again; ten do not.
    async fn poison(&self) -> Result<Vec<String>> {
        const MOST: usize = 3;
        let crew = self.crew(1, &[("CHAOS_TTL_MS", "1000")]).await?;
        let mut connection = self.database.pool.acquire().await?;
        self.enqueue(&mut connection, 1, 1, 0, "Abort").await?;
        self.enqueue(&mut connection, 2, 11, 50, "Wait").await?;
        let (mut faults, until) = (Vec::new(), Instant::now() + Duration::from_secs(40));
        let mut drained = false;
        while !drained && faults.len() <= MOST && Instant::now() < until {
            crew.start_all()?;
            drained = drain(&self.database, Duration::from_millis(100)).await?;
            let (who, from) = (crew.label(0), self.clock.now());
            if crew.reap() > 0 {
                faults.push(Fault { kind: Kind::Kill, who, from, until: from, held: Vec::new(), quiet: None });
            }
        }
        let (found, mut reports) = self.conclude(&crew, drained, 11, 11, &faults).await?;
        if faults.len() > MOST {
            reports.push(format!("a job has ended {} processes, and is not dead", faults.len()));
        } else if (found.completed, found.dead) != (10, 1) {
            reports.push(format!("{} innocents completed of 10, {} dead letters instead of 1", found.completed, found.dead));
        }
        Ok(reports)
    }

    /// A job is committed after others that were enqueued later have been claimed.
    async fn late(&self) -> Result<Vec<String>> {
        let crew = self.crew(1, &[]).await?;
        crew.start_all()?;
        let mut open = self.database.pool.begin().await?;
        self.enqueue(&mut open, 1, 1, 1, "Wait").await?;
        for n in 2..=6 {
            self.enqueue(&mut *self.database.pool.acquire().await?, n, n, 1, "Wait").await?;
            drain(&self.database, Duration::from_secs(10)).await?;
        }
        open.commit().await?;
        let drained = drain(&self.database, Duration::from_secs(8)).await?;
        Ok(self.conclude(&crew, drained, 6, 6, &[]).await?.1)
    }

    /// A job is committed after a worker said that it sleeps, by a transaction that could not see so.
    async fn sleep(&self) -> Result<Vec<String>> {
        let crew = self.crew(1, &[("CHAOS_POLL_MS", "30000")]).await?;
        let mut drained = true;
        for n in 1..=2 {
            let mut open = self.database.pool.begin().await?;
            self.enqueue(&mut open, n, n, 1, "Wait").await?;
            crew.start_all()?;
            let until = Instant::now() + Duration::from_secs(10);
            while self.database.count("select count(*) from queue.idle").await? == 0 && Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::time::sleep(Duration::from_millis(700)).await;
            open.commit().await?;
            drained &= drain(&self.database, Duration::from_secs(5)).await?;
            crew.stop_all();
        }
        Ok(self.conclude(&crew, drained, 2, 2, &[]).await?.1)
    }

    /// One payload among twenty cannot be read.
    async fn unreadable(&self) -> Result<Vec<String>> {
        // Past what an enqueue refuses.
        const BAD: &str = r#"
            select queue.enqueue('chaos', '{"n": 21, "ms": 0, "act": "Wait"}', '{"queue": "chaos"}');
            update queue.job set payload = jsonb_set(payload, '{ms}', '1e400') where payload ->> 'n' = '21'"#;
        let crew = self.crew(1, &[]).await?;
        let mut open = self.database.pool.begin().await?;
        sqlx::raw_sql(BAD).execute(&mut *open).await?;
        self.enqueue(&mut open, 1, 20, 1, "Wait").await?;
        open.commit().await?;
        crew.start_all()?;
        let drained = drain(&self.database, Duration::from_secs(10)).await?;
        let (found, mut reports) = self.conclude(&crew, drained, 20, 21, &[]).await?;
        if found.dead != 1 {
            reports.push(format!("{} dead letters instead of 1", found.dead));
        }
        Ok(reports)
    }

    /// The first job of each key is committed while the second one is being enqueued.
    async fn order(&self) -> Result<Vec<String>> {
        const KEYS: i64 = 5;
        let crew = self.crew(2, &[]).await?;
        crew.start_all()?;
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
            // Long enough for a worker to begin what nothing keeps from it.
            tokio::time::sleep(Duration::from_millis(700)).await;
            Ok(open.commit().await?)
        };
        tokio::try_join!(seconds, firsts)?;
        let drained = drain(&self.database, Duration::from_secs(10)).await?;
        let last = 2 * KEYS.cast_unsigned();
        let mut reports = self.conclude(&crew, drained, last, last, &[]).await?.1;
        reports.extend(out_of_order(&history::read(&self.folder)?, |n| n.div_ceil(2)));
        Ok(reports)
    }

    /// Many schedules, and workers of which one stands still in between.
    async fn ticks(&self) -> Result<Vec<String>> {
        let crew = self.crew(3, &[("CHAOS_TTL_MS", "1000"), ("CHAOS_DECLARES", "true")]).await?;
        ticks::make(&self.database, 30).await?;
        crew.start_all()?;
        let span = Duration::from_secs(2);
        for signal in ["STOP", "CONT"] {
            tokio::time::sleep(span).await;
            crew.signal(0, signal);
        }
        tokio::time::sleep(span).await;
        let ticks = ticks::account(&self.database).await?;
        let drained = drain(&self.database, Duration::from_secs(10)).await?;
        let mut reports = self.conclude(&crew, drained, 0, 0, &[]).await?.1;
        if ticks.wrong() > 0 {
            reports.push(format!("{ticks:?}"));
        }
        Ok(reports)
    }

    /// Jobs that run for longer than they were to wait, jobs that a worker has claimed and does not come to, and jobs that are over before it starts.
    async fn expiry(&self) -> Result<Vec<String>> {
        let crew = self.crew(1, &[("CHAOS_CONCURRENCY", "2")]).await?;
        let mut connection = self.database.pool.acquire().await?;
        self.enqueue_for(&mut connection, 1, 5, 10, "300 ms").await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        crew.start_all()?;
        self.enqueue_for(&mut connection, 6, 25, 2500, "1500 ms").await?;
        let drained = drain(&self.database, Duration::from_secs(20)).await?;
        let (found, mut reports) = self.conclude(&crew, drained, 25, 25, &[]).await?;
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

    /// The queue is paused in the middle of its work.
    async fn pauses(&self) -> Result<Vec<String>> {
        let crew = self.crew(2, &[("CHAOS_CONCURRENCY", "3")]).await?;
        self.enqueue(&mut *self.database.pool.acquire().await?, 1, 200, 50, "Wait").await?;
        crew.start_all()?;
        while self.database.count("select count(*) from queue.done_many").await? == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (pool, store, scope, from) = (&self.database.pool, Store::default(), Scope::queue("chaos"), self.clock.now());
        operate::pause(pool, store, &scope, None).await?;
        operate::until_paused(pool, store, &scope).await?;
        let quiet = Some(self.clock.now());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let fault = Fault { kind: Kind::Pause, who: String::new(), from, until: self.clock.now(), held: Vec::new(), quiet };
        operate::resume(pool, store, &scope).await?;
        let drained = drain(&self.database, Duration::from_secs(20)).await?;
        Ok(self.conclude(&crew, drained, 200, 200, &[fault]).await?.1)
    }

    /// One job among thirty fails whatever batch it is in.
    async fn batches(&self) -> Result<Vec<String>> {
        const ENQUEUE: &str =
            "select queue.enqueue('chaos_batch', jsonb_build_object('n', n, 'ms', 1, 'act', case n when 7 then 'Poison' else 'Wait' end),
                '{\"queue\": \"chaos\"}')
           from generate_series(1, 30) n";
        let crew = self.crew(1, &[]).await?;
        sqlx::query(ENQUEUE).execute(&self.database.pool).await?;
        crew.start_all()?;
        let drained = drain(&self.database, Duration::from_secs(20)).await?;
        let (found, mut reports) = self.conclude(&crew, drained, 30, 30, &[]).await?;
        if (found.completed, found.poison) != (29, 1) {
            reports.push(format!("{} innocents completed of 29, {} dead letters of poison", found.completed, found.poison));
        }
        Ok(reports)
    }

    /// The server crashes as soon as jobs begin under a limit, of which nothing else that commits has told the disk.
    async fn limits(&self) -> Result<Vec<String>> {
        const ROUNDS: u64 = 3;
        const JOBS: u64 = 6;
        const ENQUEUE: &str = "select queue.enqueue('chaos', jsonb_build_object('n', 8 * n, 'ms', 4000, 'act', 'Wait'),
                '{\"queue\": \"chaos_limited\", \"max_attempts\": 1000}')
           from generate_series($1::bigint, $2) n";
        limited::set(&self.database).await?;
        let crew = self.crew(2, &[]).await?;
        crew.start_all()?;
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
        let mut reports = self.conclude(&crew, drained, 0, 8 * ROUNDS * JOBS, &faults).await?.1;
        let over = limited::check(&history::read(&self.folder)?, &faults);
        if over.begun[0] < usize::try_from(ROUNDS * JOBS)? {
            reports.push(format!("{} jobs began under the limit of {}", over.begun[0], ROUNDS * JOBS));
        }
        reports.extend(over.notes);
        Ok(reports)
    }

    /// Enqueues the job of this number under an ordering key.
    async fn enqueue_under(&self, connection: &mut PgConnection, key: i64, n: i64) -> Result<()> {
        const ENQUEUE: &str = "select queue.enqueue_with('chaos', jsonb_build_object('n', $1, 'ms', 1500, 'act', 'Wait'),
                jsonb_build_object('queue', 'chaos', 'key', $2::text))";
        sqlx::query(ENQUEUE).bind(n).bind(key.to_string()).execute(connection).await?;
        Ok(())
    }
}
