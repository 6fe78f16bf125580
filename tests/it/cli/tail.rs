//! `tail`: what it prints for new and changed jobs, and how it ends.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use queue_core::{Job as _, JobState};
use tests::{Act, Do, TestDb, eventually};

use super::{CLI, command, enqueue, on, text};

/// A running `tail`, and its output.
struct RunningTail {
    process: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl RunningTail {
    fn start(db: &TestDb, arguments: &[&str]) -> Self {
        let mut tail = command(CLI, &[&["tail"], arguments].concat());
        let mut process = tail.env("DATABASE_URL", &db.url).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let (out, lines) = (BufReader::new(process.stdout.take().unwrap()), Arc::clone(&said));
        std::thread::spawn(move || out.lines().map_while(Result::ok).for_each(|line| lines.lock().unwrap().push(line)));
        Self { process, said }
    }

    /// Returns whether a line contains all of these words.
    fn has(&self, words: &[&str]) -> bool {
        self.said.lock().unwrap().iter().any(|line| words.iter().all(|word| line.contains(word)))
    }

    async fn says(&self, words: &[&str]) {
        eventually(&format!("it prints {words:?}"), async || self.has(words)).await;
    }

    /// Returns the output after this signal, or after it has ended by itself.
    async fn ends(mut self, signal: Option<&str>) -> Vec<String> {
        if let Some(signal) = signal {
            let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
            assert!(sent.success());
        }
        eventually("it ends", async || self.process.try_wait().unwrap().is_some()).await;
        let status = self.process.wait().unwrap();
        let mut stderr = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert!(status.success() && stderr.is_empty(), "{status}: {stderr}");
        std::mem::take(&mut self.said.lock().unwrap())
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn tail_follows_jobs_as_they_come_fail_and_end_until_a_signal() {
    let db = TestDb::new().await;
    let before = enqueue(&db, Act::Ok("before".into())).await.to_string();
    let none = RunningTail::start(&db, &["-n", "0"]);
    let all = RunningTail::start(&db, &[]);
    let mail = RunningTail::start(&db, &["--queue", "default", "--json"]);
    all.says(&[&before, "ready", "default/do"]).await;
    mail.says(&["\"state\":\"ready\"", &before]).await;
    let bad = enqueue(&db, Act::Terminal("no \u{1b}[2Jway".into())).await.to_string();
    none.says(&[&bad, "ready"]).await;
    let elsewhere = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).queue("elsewhere").await.unwrap().id().to_string();
    all.says(&[&elsewhere, "elsewhere/do"]).await;
    db.run_while(db.worker(), async {
        none.says(&[&bad, "dead", "1/3", "no \\u{1b}[2Jway"]).await;
        all.says(&[&elsewhere, "completed"]).await;
        none.says(&[&before, "completed"]).await;
        mail.says(&[&bad, "\"state\":\"dead\""]).await;
        let hangs = enqueue(&db, Act::Hang).await.to_string();
        none.says(&[&hangs, "running", "1/3"]).await;
        assert!(on(&db, &["cancel", &hangs]).status.success());
        none.says(&[&hangs, "cancelled"]).await;
    })
    .await;
    assert!(!mail.has(&[&elsewhere]));
    let said = none.ends(Some("-INT")).await;
    assert_eq!(said.iter().filter(|line| line.contains(&before) && line.contains("ready")).count(), 0, "{said:?}");
    let said = all.ends(Some("-TERM")).await;
    // The same state is not printed twice.
    assert_eq!(said.iter().filter(|line| line.contains(&bad) && line.contains("dead")).count(), 1, "{said:?}");
    mail.ends(Some("-INT")).await;
    db.finish().await;
}

#[tokio::test]
async fn tail_of_one_job_ends_when_the_job_has_finished() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Ok("x".into())).await;
    let one = RunningTail::start(&db, &[&job.to_string()]);
    one.says(&["ready"]).await;
    enqueue(&db, Act::Ok("another".into())).await;
    db.run_while(db.worker(), db.until(job, JobState::Completed)).await;
    let said = one.ends(None).await;
    assert!(said.iter().all(|line| line.contains(&job.to_string())) && said.last().unwrap().contains("completed"), "{said:?}");
    let unknown = on(&db, &["tail", "7"]);
    assert_eq!(unknown.status.code(), Some(3), "{}", text(&unknown.stderr));
    db.finish().await;
}
