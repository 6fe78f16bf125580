//! Operations on jobs. Jobs named by id are changed one by one, so that a rejection does not affect the other jobs. Jobs that match a
//! filter are changed in batches.

use std::{
    io::{BufRead, IsTerminal as _, Write, stderr, stdin},
    process::ExitCode,
};

use queue_core::{
    Error, JobId, JobRef, Queue, Store,
    operate::{Operation, OperationOutcome},
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sqlx::PgPool;

use super::{
    act_args::{ActCommand, ActRequest},
    audit::{AuditedTransaction, audit_note},
    job_name::JobName,
    name_check::check_filter,
    open::open_store,
    print,
    problem::{Problem, REFUSED},
    settings::Settings,
    values::counted_jobs,
};
use crate::live::{Database, shutdown_signal};

/// Applies an operation to the named jobs, or to all jobs that match a filter.
pub(super) async fn act(settings: &Settings, command: ActCommand<JobId>) -> Result<ExitCode, Problem> {
    let request = command.into_request()?;
    let (database, store) = open_store(settings).await?;
    let code = if request.chosen.all {
        all(&database, store, &request).await.map(|()| ExitCode::SUCCESS)?
    } else {
        let mut answers = ActResults::default();
        // Rejections are reported at the end. A database failure ends the loop.
        for id in &request.chosen.ids {
            answers.act((database.pool(), store, *id), id, request.act).await?;
        }
        answers.print(request.act, request.chosen.output.json.then(Map::new))?
    };
    database.close().await;
    Ok(code)
}

/// Applies an operation to all jobs that match the filter. A signal stops the operation after the current batch.
async fn all(database: &Database, store: Store, ActRequest { act, chosen, rate }: &ActRequest<JobId>) -> Result<(), Problem> {
    let (pool, filter, as_json) = (database.pool(), chosen.filter(), chosen.output.json);
    check_filter(database, store, &filter).await?;
    if chosen.dry_run {
        let most = if chosen.exact { u64::MAX } else { COUNT_LIMIT };
        let jobs = Queue::new(pool).store(store).jobs().matching(&filter).apply(*act).count_up_to(most).await?;
        return if as_json {
            print::json(&json!({ "found": jobs.min(most), "partial": jobs > most }))
        } else {
            print::lines(&format_preview(*act, jobs, most))
        };
    }
    if needs_confirmation(*act) && !chosen.yes {
        let jobs = Queue::new(pool).store(store).jobs().matching(&filter).apply(*act).count_up_to(COUNT_LIMIT).await?;
        if jobs > 0 {
            confirm(&format_preview(*act, jobs, COUNT_LIMIT), CONFIRM_HINT)?;
        }
    }
    let noted = audit_note(act.done(), chosen.text());
    let queue = Queue::new(pool).store(store);
    let acting = queue.jobs().matching(&filter).apply(*act).noted(noted).until(shutdown_signal());
    let swept = if let Some(rate) = rate { acting.rate(*rate).await? } else { acting.await? };
    if as_json {
        return print::json(&json!({ act.done(): swept.done, "cancelling": swept.cancelling }));
    }
    print::lines(&format_done(*act, swept.done, swept.cancelling))
}

/// Formats the result line with the number of changed jobs and the number of running jobs that are being cancelled.
pub(super) fn format_done(act: Operation, done: u64, cancelling: u64) -> String {
    let running = if cancelling > 0 { format!(", cancelling {cancelling} running") } else { String::new() };
    format!("{} {}{running}", act.done(), counted_jobs(done, false))
}

/// Returns whether the operation needs confirmation when applied to all jobs that match a filter.
pub(super) fn needs_confirmation(act: Operation) -> bool {
    matches!(act, Operation::Requeue | Operation::ForceRequeue | Operation::Cancel | Operation::Discard)
}

/// Maximum number of jobs counted for a preview, unless `--exact` is given.
pub(super) const COUNT_LIMIT: u64 = 10_000;

/// Formats the preview of an operation on `jobs` jobs. If `jobs` exceeds `most`, shows `most` as a lower bound.
pub(super) fn format_preview(act: Operation, jobs: u64, most: u64) -> String {
    format!("{} would be {}", counted_jobs(jobs.min(most), jobs > most), act.done())
}

/// Suggested fix for scripts, which cannot answer the confirmation prompt.
pub(super) const CONFIRM_HINT: &str = "pass `--yes`, or `--dry-run` to count the jobs";

/// Asks the user for confirmation. If stdin is not a terminal, returns a usage error that suggests `fix`.
pub(super) fn confirm(what: &str, fix: &str) -> Result<(), Problem> {
    prompt((what, fix), &mut stdin().lock(), &mut stderr(), stdin().is_terminal())
}

fn prompt((what, fix): (&str, &str), answers: &mut impl BufRead, terminal: &mut impl Write, is_terminal: bool) -> Result<(), Problem> {
    if !is_terminal {
        return Err(Problem::usage(format!("{what}, and stdin is not a terminal to confirm; {fix}")));
    }
    // A write error is ignored: if stderr is closed, the question is not shown, and an empty answer counts as no.
    let _ = write!(terminal, "{what}. Continue? [y/N] ");
    let mut answer = String::new();
    answers.read_line(&mut answer).map_err(Problem::failed)?;
    if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
        Ok(())
    } else {
        Err(Problem::failed("not confirmed, nothing was changed"))
    }
}

/// Rejected job in the `--json` output.
#[derive(Serialize)]
struct RefusedJob {
    id: String,
    reason: String,
    #[serde(skip)]
    message: String,
}

/// Results of an operation on named jobs: changed jobs, running jobs that are being cancelled, and rejected jobs with the reasons.
#[derive(Default)]
pub(super) struct ActResults {
    done: Vec<String>,
    cancelling: Vec<String>,
    refused: Vec<RefusedJob>,
}

impl ActResults {
    /// Applies the operation to one job and records the operation in the audit log. A rejection is added to the results, not returned as
    /// an error.
    pub(super) async fn act(
        &mut self,
        (pool, store, id): (&PgPool, Store, JobId),
        name: &impl JobName,
        act: Operation,
    ) -> Result<(), Problem> {
        let mut tx = AuditedTransaction::begin(pool, store).await?;
        match JobRef::from_id(id).in_store(store).apply(&mut *tx, act).await {
            Ok(acted) => {
                tx.commit(act.done(), format!("job {id}"), 1).await?;
                if acted == OperationOutcome::Cancelling { &mut self.cancelling } else { &mut self.done }.push(name.to_string());
            }
            Err(error @ (Error::NotFound { .. } | Error::WrongState { .. } | Error::Locked { .. } | Error::KeyTaken { .. })) => {
                let reason = error.to_string();
                self.refused.push(RefusedJob { id: name.to_string(), message: name.refusal(&reason), reason });
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Prints the results and returns the exit code. With `document`, prints the results as JSON, merged into the document.
    pub(super) fn print(self, act: Operation, document: Option<Map<String, Value>>) -> Result<ExitCode, Problem> {
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
        for RefusedJob { message, .. } in refused {
            Problem::refused(message).report();
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(answer: &str) -> bool {
        prompt(("7 jobs would be cancelled", CONFIRM_HINT), &mut answer.as_bytes(), &mut Vec::new(), true).is_ok()
    }

    #[test]
    fn only_yes_confirms_and_a_script_needs_the_option() {
        assert!(["y\n", "Yes\n", " YES "].into_iter().all(answered));
        assert!(!["", "\n", "n\n", "yesterday\n", "\u{1b}y\n"].into_iter().any(answered));
        let refused = prompt(("7 jobs would be cancelled", CONFIRM_HINT), &mut "y\n".as_bytes(), &mut Vec::new(), false).unwrap_err();
        assert!(refused.to_string().contains("7 jobs"), "{refused}");
    }
}
