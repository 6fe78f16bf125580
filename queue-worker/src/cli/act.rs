//! What is done to jobs: each job by itself, so that one that is refused does not hold up the others; or all of a kind, in batches.

use std::{
    io::{BufRead, IsTerminal as _, Write, stderr, stdin},
    process::ExitCode,
};

use queue_core::{
    Error, JobId, JobRef, Store,
    operate::{self, Act, Acted},
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sqlx::PgPool;

use super::{
    act_args::{ActCommand, Asked},
    known_queue::check_filter,
    named::JobName,
    noted::{Noted, note},
    open::open_store,
    print,
    problem::{Problem, REFUSED},
    settings::Settings,
    values::counted_jobs,
};
use crate::live::{Database, shutdown_signal};

/// Does it to the jobs named, or to all of a kind.
pub(super) async fn act(settings: &Settings, command: ActCommand<JobId>) -> Result<ExitCode, Problem> {
    let asked = command.asked()?;
    let (database, store) = open_store(settings).await?;
    let code = if asked.chosen.all {
        all(&database, store, &asked).await.map(|()| ExitCode::SUCCESS)?
    } else {
        let mut answers = Answers::default();
        // A failure of the database ends it; a refusal is said at the end.
        for id in &asked.chosen.ids {
            answers.act((database.pool(), store, *id), id, asked.act).await?;
        }
        answers.tell(asked.act, asked.chosen.output.json.then(Map::new))?
    };
    database.close().await;
    Ok(code)
}

/// A signal ends it after the batch that is on its way.
async fn all(database: &Database, store: Store, Asked { act, chosen, rate }: &Asked<JobId>) -> Result<(), Problem> {
    let (pool, filter, as_json) = (database.pool(), chosen.filter(), chosen.output.json);
    check_filter(database, store, &filter).await?;
    if chosen.dry_run {
        let most = if chosen.exact { u64::MAX } else { COUNTED };
        let jobs = operate::count_matching_up_to(pool, store, &filter, *act, most).await?;
        return if as_json {
            print::json(&json!({ "found": jobs.min(most), "partial": jobs > most }))
        } else {
            print::lines(&would(*act, jobs, most))
        };
    }
    if is_asked_for(*act) && !chosen.yes {
        let jobs = operate::count_matching_up_to(pool, store, &filter, *act, COUNTED).await?;
        if jobs > 0 {
            confirm(&would(*act, jobs, COUNTED), DRY_RUN)?;
        }
    }
    let noted = note(act.done(), chosen.text());
    let acting = operate::act_all(pool, store, &filter, *act).noted(noted).until(shutdown_signal());
    let swept = if let Some(rate) = rate { acting.rate(*rate).await? } else { acting.await? };
    if as_json {
        return print::json(&json!({ act.done(): swept.done, "cancelling": swept.cancelling }));
    }
    print::lines(&told(*act, swept.done, swept.cancelling))
}

/// What was done.
pub(super) fn told(act: Act, done: u64, cancelling: u64) -> String {
    let running = if cancelling > 0 { format!(", cancelling {cancelling} that run") } else { String::new() };
    format!("{} {}{running}", act.done(), counted_jobs(done, false))
}

/// Whether somebody is asked before it is done to all of a kind.
pub(super) fn is_asked_for(act: Act) -> bool {
    matches!(act, Act::Requeue | Act::ForceRequeue | Act::Cancel | Act::Discard)
}

/// Jobs are counted so far before it is said what would be done, unless all are to be counted.
pub(super) const COUNTED: u64 = 10_000;

/// What would be done.
pub(super) fn would(act: Act, jobs: u64, most: u64) -> String {
    format!("{} would be {}", counted_jobs(jobs.min(most), jobs > most), act.done())
}

/// What a script says instead.
pub(super) const DRY_RUN: &str = "say `--yes`, or `--dry-run` to see how many";

/// Asks whoever sits there; from a script it must be said.
pub(super) fn confirm(what: &str, fix: &str) -> Result<(), Problem> {
    ask((what, fix), &mut stdin().lock(), &mut stderr(), stdin().is_terminal())
}

fn ask((what, fix): (&str, &str), answers: &mut impl BufRead, terminal: &mut impl Write, is_terminal: bool) -> Result<(), Problem> {
    if !is_terminal {
        return Err(Problem::usage(format!("{what}, and nobody can be asked here; {fix}")));
    }
    // With stderr closed there is nobody to ask, and no answer is no.
    let _ = write!(terminal, "{what}. Go on? [y/N] ");
    let mut answer = String::new();
    answers.read_line(&mut answer).map_err(Problem::failed)?;
    if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) { Ok(()) } else { Err(Problem::failed("nothing was done")) }
}

/// A job that was left as it is, as `--json` shows it.
#[derive(Serialize)]
struct Refused {
    id: String,
    reason: String,
    #[serde(skip)]
    said: String,
}

/// What came of an act on jobs that were named one by one.
#[derive(Default)]
pub(super) struct Answers {
    done: Vec<String>,
    cancelling: Vec<String>,
    refused: Vec<Refused>,
}

impl Answers {
    /// Does it to a job, which goes by this name, and notes it. That it is refused is an answer.
    pub(super) async fn act(&mut self, (pool, store, id): (&PgPool, Store, JobId), name: &impl JobName, act: Act) -> Result<(), Problem> {
        let mut noted = Noted::begin(pool, store).await?;
        match JobRef::from_id(id).in_store(store).act(&mut *noted, act).await {
            Ok(acted) => {
                noted.commit(act.done(), format!("job {id}"), 1).await?;
                if acted == Acted::Cancelling { &mut self.cancelling } else { &mut self.done }.push(name.to_string());
            }
            Err(error @ (Error::NotFound { .. } | Error::WrongState { .. } | Error::Locked { .. } | Error::KeyTaken { .. })) => {
                let reason = error.to_string();
                self.refused.push(Refused { id: name.to_string(), said: name.refusal(&reason), reason });
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Prints what was done: as JSON beside what the document has already, if that is given.
    pub(super) fn tell(self, act: Act, document: Option<Map<String, Value>>) -> Result<ExitCode, Problem> {
        let Self { done, cancelling, refused } = self;
        if let Some(mut document) = document {
            let own = [(act.done(), json!(done)), ("cancelling", json!(cancelling)), ("refused", json!(refused))];
            document.extend(own.map(|(key, value)| (key.to_owned(), value)));
            print::json(&document)?;
        } else {
            let done = done.iter().map(|id| format!("{} {id}", act.done()));
            let lines: Vec<String> = done.chain(cancelling.iter().map(|id| format!("cancelling {id}"))).collect();
            if !lines.is_empty() {
                print::lines(&lines.join("\n"))?;
            }
        }
        let code = if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) };
        for Refused { said, .. } in refused {
            Problem::refused(said).report();
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(answer: &str) -> bool {
        ask(("7 jobs would be cancelled", DRY_RUN), &mut answer.as_bytes(), &mut Vec::new(), true).is_ok()
    }

    #[test]
    fn only_yes_is_yes_and_a_script_must_say_it() {
        assert!(["y\n", "Yes\n", " YES "].into_iter().all(answered));
        assert!(!["", "\n", "n\n", "yesterday\n", "\u{1b}y\n"].into_iter().any(answered));
        let refused = ask(("7 jobs would be cancelled", DRY_RUN), &mut "y\n".as_bytes(), &mut Vec::new(), false).unwrap_err();
        assert!(refused.to_string().contains("7 jobs"), "{refused}");
    }
}
