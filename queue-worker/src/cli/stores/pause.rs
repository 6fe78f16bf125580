//! `stores pause`, `stores resume` and `stores pauses`: create, end and list pauses in all stores.

use std::process::ExitCode;

use queue_core::{
    operate::{Pause, Scope},
    stores::Member,
};
use serde_json::json;

use super::{
    failures::{FailedStore, report_failures},
    open::{StoreScope, StoreSession},
    overview::NONE,
};
use crate::{
    cli::{
        name_check::{UnknownNames, check_names, warn_of_unknown_names},
        pause::{COLUMNS, PauseArgs, PauseScopeArgs, cells, create_pause, end_pause, filter_of, wait_for_workers},
        print,
        problem::Problem,
        settings::Settings,
    },
    live::shutdown_signal,
};

/// Runs `stores pause`, which pauses the scope in every store. With `--wait`, also waits until no worker starts jobs of the scope.
pub(super) async fn pause(settings: &Settings, args: &PauseArgs) -> Result<ExitCode, Problem> {
    let scope = args.which.scope()?;
    check_names(&filter_of(&scope))?;
    let interrupted = shutdown_signal();
    let mut opened = StoreSession::for_writing(settings, StoreScope::All).await?;
    if opened.records.is_empty() {
        return Err(Problem::refused(NONE));
    }
    let create = |member: Member| {
        let (scope, reason) = (scope.clone(), args.reason.clone());
        async move {
            let unknown = UnknownNames::load(member.pool(), member.store(), &filter_of(&scope)).await?;
            create_pause((member.pool(), member.store()), &scope, reason.as_deref()).await?;
            Ok(unknown)
        }
    };
    let paused = opened.query_all(false, create).await?;
    warn_of_unknown_names(&filter_of(&scope), &paused.iter().map(|(_, unknown)| unknown).collect::<Vec<_>>());
    let members: Vec<Member> = paused.into_iter().map(|(member, _)| member).collect();
    if args.wait {
        tokio::select! {
            stopped = wait_in_each(&mut opened, &members, &scope) => stopped?,
            () = interrupted => {
                let message = format!("{scope}: interrupted while waiting for workers; it stays paused, see `queue-worker stores pauses`");
                return Err(Problem::failed(message));
            }
        }
    }
    if args.which.output.json {
        print::json(&json!({ "paused": scope, "stores": names(&members), "stopped": args.wait, "failed": opened.failed }))?;
    } else {
        let more = if args.wait && opened.failed.is_empty() { "; no worker starts these jobs" } else { "" };
        print::lines(&format!("paused {scope} in {}{more}", count(&members)))?;
    }
    let code = report_failures(&opened.failed, ExitCode::SUCCESS);
    opened.close().await;
    Ok(code)
}

/// Waits until no worker of the stores starts jobs of the scope. Adds stores whose wait fails to `failed`.
async fn wait_in_each(opened: &mut StoreSession, members: &[Member], scope: &Scope) -> Result<(), Problem> {
    for member in members {
        match wait_for_workers(&member.queue(), scope).await {
            Ok(true) => {}
            Ok(false) => {
                let store = member.name();
                let message =
                    format!("{scope}: resumed in the store `{store}` by another operator during the wait; pause it again if needed");
                return Err(Problem::failed(message));
            }
            Err(error) => opened.failed.push(FailedStore::from(member.name(), &error)),
        }
    }
    Ok(())
}

/// Runs `stores resume`, which ends the pause with exactly this scope in every store that has one.
pub(super) async fn resume(settings: &Settings, which: &PauseScopeArgs) -> Result<ExitCode, Problem> {
    let scope = which.scope()?;
    check_names(&filter_of(&scope))?;
    let mut opened = StoreSession::for_writing(settings, StoreScope::All).await?;
    let end = |member: Member| {
        let scope = scope.clone();
        async move { end_pause((member.pool(), member.store()), &scope).await }
    };
    let answers = opened.query_all(false, end).await?;
    let resumed: Vec<Member> = answers.into_iter().filter(|(_, is_resumed)| *is_resumed).map(|(member, _)| member).collect();
    if resumed.is_empty() && opened.failed.is_empty() {
        return Err(Problem::refused(format!("{scope}: not paused in any store; `queue-worker stores pauses` shows what is")));
    }
    if which.output.json {
        print::json(&json!({ "resumed": scope, "stores": names(&resumed), "failed": opened.failed }))?;
    } else {
        print::lines(&format!("resumed {scope} in {}", count(&resumed)))?;
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
            None if answers.is_empty() && !opened.failed.is_empty() => "no store has answered".to_owned(),
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

fn names(members: &[Member]) -> Vec<&str> {
    members.iter().map(Member::name).collect()
}

fn count(members: &[Member]) -> String {
    if members.len() == 1 { "1 store".to_owned() } else { format!("{} stores", members.len()) }
}
