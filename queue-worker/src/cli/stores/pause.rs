//! `stores pause`, `stores resume` and `stores pauses`: create, end and list pauses in all stores.

use std::process::ExitCode;

use queue_core::{
    operate::{Pause, Scope},
    stores::Member,
};
use serde::Serialize;
use serde_json::json;

use super::{
    failures::{FailedStore, report_failures},
    open::{StoreScope, StoreSession},
    overview::NONE,
};
use crate::{
    cli::{
        name_check::{UnknownNames, check_names, warn_of_unknown_names},
        pause::{
            COLUMNS, PauseArgs, PauseScopeArgs, cells, create_pause, describe_pause, end_pause, filter_of, overlaps, wait_for_workers,
        },
        print,
        problem::Problem,
        settings::Settings,
    },
    live::shutdown_signal,
    program,
};

/// Pause of one store in the `--json` output.
#[derive(Serialize)]
struct PausedStore<'a> {
    store: &'a str,
    number: i64,
    /// Whether `--wait` was given, and no worker of the store starts the scope's jobs.
    stopped: bool,
}

/// Runs `stores pause`, which pauses the scope in every store. With `--wait`, also waits until no worker of these stores starts its jobs.
pub(super) async fn pause(settings: &Settings, args: &PauseArgs) -> Result<ExitCode, Problem> {
    let scope = args.which.scope()?;
    let filter = filter_of(&scope);
    check_names(&filter)?;
    let mut opened = StoreSession::for_writing(settings, StoreScope::All).await?;
    if opened.records.is_empty() {
        return Err(Problem::refused(NONE));
    }
    // From here on, the command handles signals, so that it reports the state of the pauses if a signal interrupts the wait.
    let interrupted = args.wait.then(shutdown_signal);
    let create = |member: Member| {
        let (scope, reason, filter) = (scope.clone(), args.reason.clone(), filter.clone());
        async move {
            let unknown = UnknownNames::load(member.pool(), member.store(), &filter).await?;
            let number = create_pause((member.pool(), member.store()), &scope, reason.as_deref()).await?;
            Ok((number, unknown))
        }
    };
    let paused = opened.query_all(false, create).await?;
    warn_of_unknown_names(&filter, &paused.iter().map(|(_, (_, unknown))| unknown).collect::<Vec<_>>());
    let stopped = match interrupted {
        Some(interrupted) => wait_in_each(&mut opened, &paused, &scope, interrupted).await?,
        None => Vec::new(),
    };
    if args.which.output.json {
        let of = |(member, (number, _)): &(Member, (i64, UnknownNames))| {
            json!(PausedStore { store: member.name(), number: *number, stopped: stopped.iter().any(|name| name == member.name()) })
        };
        let stores: Vec<_> = paused.iter().map(of).collect();
        print::json(&json!({ "paused": scope, "stores": stores, "failed": opened.failed }))?;
    } else {
        let more = if args.wait && opened.failed.is_empty() { "; no worker starts these jobs" } else { "" };
        print::lines(&format!("paused {scope} in {}{more}", count(paused.len())))?;
    }
    let code = report_failures(&opened.failed, ExitCode::SUCCESS);
    opened.close().await;
    Ok(code)
}

/// Waits until no worker of the stores in `paused` starts jobs of the scope. Returns the names of the stores for which this holds, and adds
/// the other stores to `failed`. Returns an error if `interrupted` completes first.
async fn wait_in_each<T>(
    opened: &mut StoreSession,
    paused: &[(Member, T)],
    scope: &Scope,
    interrupted: impl Future<Output = ()>,
) -> Result<Vec<String>, Problem> {
    opened.keep_only(paused);
    let known = opened.failed.len();
    let wait = |member: Member| {
        let scope = scope.clone();
        async move { wait_for_workers(&member.queue(), &scope).await }
    };
    let answers = tokio::select! {
        answers = opened.query_all(true, wait) => Some(answers?),
        () = interrupted => None,
    };
    let Some(answers) = answers else {
        report_failures(&opened.failed, ExitCode::SUCCESS);
        return Err(Problem::failed(format!(
            "{scope}: interrupted while waiting for workers; it stays paused in {}, and `queue-worker stores pauses` shows how many workers \
             have not stopped",
            count(paused.len())
        )));
    };
    if opened.failed.len() > known {
        let is_paused = |failed: &&mut FailedStore| paused.iter().any(|(member, _)| member.name() == failed.store);
        for failed in opened.failed.iter_mut().filter(is_paused) {
            failed.error.push_str("; it is paused, but its workers may still start jobs");
        }
    }
    for (member, _) in answers.iter().filter(|(_, is_paused)| !is_paused) {
        opened.failed.push(FailedStore::of(member.name(), "resumed by another operator during the wait; pause it again if needed"));
    }
    Ok(answers.iter().filter(|(_, is_paused)| *is_paused).map(|(member, _)| member.name().to_owned()).collect())
}

/// Runs `stores resume`, which ends the pause with exactly this scope in every store that has one.
pub(super) async fn resume(settings: &Settings, which: &PauseScopeArgs) -> Result<ExitCode, Problem> {
    let scope = which.scope()?;
    check_names(&filter_of(&scope))?;
    let mut opened = StoreSession::for_writing(settings, StoreScope::All).await?;
    let end = |member: Member| {
        let scope = scope.clone();
        async move {
            let is_resumed = end_pause((member.pool(), member.store()), &scope).await?;
            Ok(if is_resumed { Some(member.queue().pauses().await?) } else { None })
        }
    };
    let answers = opened.query_all(false, end).await?;
    let resumed: Vec<(Member, Vec<Pause>)> = answers.into_iter().filter_map(|(member, left)| Some((member, left?))).collect();
    if resumed.is_empty() && opened.failed.is_empty() {
        return Err(Problem::refused(format!("{scope}: not paused in any store; `queue-worker stores pauses` shows what is")));
    }
    if which.output.json {
        let stores: Vec<_> = resumed.iter().map(|(member, left)| json!({ "store": member.name(), "paused": left })).collect();
        print::json(&json!({ "resumed": scope, "stores": stores, "failed": opened.failed }))?;
    } else {
        let left = resumed.iter().flat_map(|(member, left)| left.iter().map(move |pause| (member, pause)));
        let still = left.filter(|(_, pause)| overlaps(&pause.scope, &scope));
        let still = still.map(|(member, pause)| format!("\n{}: still {}", member.name(), describe_pause(pause)));
        print::lines(&format!("resumed {scope} in {}{}", count(resumed.len()), still.collect::<String>()))?;
    }
    let code = report_failures(&opened.failed, ExitCode::SUCCESS);
    opened.close().await;
    Ok(code)
}

/// Runs `stores pauses`, which lists the pauses of all stores.
pub(super) async fn pauses(settings: &Settings, as_json: bool) -> Result<ExitCode, Problem> {
    let mut opened = StoreSession::for_reading(settings, StoreScope::All).await?;
    let load = |member: Member| async move { member.queue().pauses().await };
    let answers = opened.query_all(false, load).await?;
    if as_json {
        let stores: Vec<_> = answers.iter().map(|(member, found)| json!({ "store": member.name(), "paused": found })).collect();
        print::json(&json!({ "stores": stores, "failed": opened.failed }))?;
    } else {
        let rows = answers.iter().flat_map(|(member, found)| found.iter().map(|pause| row(member.name(), pause)));
        let mut rows = rows.peekable();
        print::lines(&match rows.peek() {
            Some(_) => print::table(["store"].into_iter().chain(COLUMNS), rows),
            None if opened.records.is_empty() => program::commands(NONE).into_owned(),
            None if !opened.failed.is_empty() => "nothing is paused in the stores that have answered".to_owned(),
            None => "nothing is paused".to_owned(),
        })?;
    }
    let code = report_failures(&opened.failed, ExitCode::SUCCESS);
    opened.close().await;
    Ok(code)
}

fn row(store: &str, pause: &Pause) -> Vec<String> {
    std::iter::once(store.to_owned()).chain(cells(pause)).collect()
}

fn count(stores: usize) -> String {
    match stores {
        0 => "no store".to_owned(),
        1 => "1 store".to_owned(),
        stores => format!("{stores} stores"),
    }
}
