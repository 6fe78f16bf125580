//! Tests what `tail` prints for new and changed jobs, and when it exits.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use queue_core::{Job as _, JobState};
use tests::{Act, Do, TestDb, eventually};

use super::{CLI, command, enqueue, on, text};

/// Running `tail` process and the lines of its output.
struct RunningTail {
    process: Child,
    lines_read: Arc<Mutex<Vec<String>>>,
}

impl RunningTail {
    fn start(db: &TestDb, arguments: &[&str]) -> Self {
        let mut tail = command(CLI, &[&["tail"], arguments].concat());
        let mut process = tail.env("DATABASE_URL", &db.url).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let read: Arc<Mutex<Vec<String>>> = Arc::default();
        let (out, lines) = (BufReader::new(process.stdout.take().unwrap()), Arc::clone(&read));
        std::thread::spawn(move || out.lines().map_while(Result::ok).for_each(|line| lines.lock().unwrap().push(line)));
        Self { process, lines_read: read }
    }

    /// Returns whether any line of the output contains all of the words.
    fn has(&self, words: &[&str]) -> bool {
        self.lines_read.lock().unwrap().iter().any(|line| words.iter().all(|word| line.contains(word)))
    }

    async fn wait_for_line(&self, words: &[&str]) {
        eventually(&format!("it prints {words:?}"), async || self.has(words)).await;
    }

    /// Sends the signal (if any) and waits until the process has ended. Returns the output.
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
        std::mem::take(&mut self.lines_read.lock().unwrap())
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
    all.wait_for_line(&[&before, "ready", "default/do"]).await;
    mail.wait_for_line(&["\"state\":\"ready\"", &before]).await;
    let bad = enqueue(&db, Act::Terminal("no \u{1b}[2Jway".into())).await.to_string();
    none.wait_for_line(&[&bad, "ready"]).await;
    let elsewhere = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).queue("elsewhere").await.unwrap().id().to_string();
    all.wait_for_line(&[&elsewhere, "elsewhere/do"]).await;
    db.run_while(db.worker(), async {
        none.wait_for_line(&[&bad, "dead", "1/3", "no \\u{1b}[2Jway"]).await;
        all.wait_for_line(&[&elsewhere, "completed"]).await;
        none.wait_for_line(&[&before, "completed"]).await;
        mail.wait_for_line(&[&bad, "\"state\":\"dead\""]).await;
        let hangs = enqueue(&db, Act::Hang).await.to_string();
        none.wait_for_line(&[&hangs, "running", "1/3"]).await;
        assert!(on(&db, &["cancel", &hangs]).status.success());
        none.wait_for_line(&[&hangs, "cancelled"]).await;
    })
    .await;
    assert!(!mail.has(&[&elsewhere]));
    let lines = none.ends(Some("-INT")).await;
    assert_eq!(lines.iter().filter(|line| line.contains(&before) && line.contains("ready")).count(), 0, "{lines:?}");
    let lines = all.ends(Some("-TERM")).await;
    // A state is not printed twice.
    assert_eq!(lines.iter().filter(|line| line.contains(&bad) && line.contains("dead")).count(), 1, "{lines:?}");
    mail.ends(Some("-INT")).await;
    db.finish().await;
}

#[tokio::test]
async fn tail_of_one_job_ends_when_the_job_has_finished() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Ok("x".into())).await;
    let one = RunningTail::start(&db, &[&job.to_string()]);
    one.wait_for_line(&["ready"]).await;
    enqueue(&db, Act::Ok("another".into())).await;
    db.run_while(db.worker(), db.until(job, JobState::Completed)).await;
    let lines = one.ends(None).await;
    assert!(lines.iter().all(|line| line.contains(&job.to_string())) && lines.last().unwrap().contains("completed"), "{lines:?}");
    let unknown = on(&db, &["tail", "7"]);
    assert_eq!(unknown.status.code(), Some(3), "{}", text(&unknown.stderr));
    db.finish().await;
}
