//! `stores where`, `stores place`, `stores move`, `stores moves` and `stores drain`: place and move tenants.

use std::{
    io::{IsTerminal as _, stderr},
    time::Duration,
};

use queue_core::{
    Error,
    stores::{Move, MoveState, PlaceRecord},
};
use serde_json::json;
use tokio::time::sleep;

use super::{
    failures::FailedStore,
    open::{StoreScope, StoreSession, query_home},
};
use crate::{
    cli::{
        print,
        problem::{Problem, replace_note},
        settings::Settings,
    },
    live::shutdown_signal,
};

/// Poll interval while waiting for a move.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Runs `stores where`, which shows the store of a tenant as recorded in the home database. Does not place a tenant that has no store.
pub(super) async fn find(settings: &Settings, key: &str, as_json: bool) -> Result<(), Problem> {
    let opened = StoreSession::for_reading(settings, StoreScope::Home).await?;
    let place = query_home(settings, opened.stores.look_up(key)).await?.ok_or_else(|| not_placed(key))?;
    opened.close().await;
    if as_json {
        return print::json(&place);
    }
    let PlaceRecord { store, leaves, is_fenced, moved_at, .. } = place;
    let since = moved_at.map_or_else(String::new, |at| format!(" since {}", print::time(at)));
    print::lines(&match leaves {
        Some(from) if is_fenced => format!("{store}, moving from {from}{since}: its jobs there still run"),
        Some(from) => format!("{from}, moving to {store}{since}: transactions that enqueue in {from} may be open"),
        None => store,
    })
}

fn not_placed(key: &str) -> Problem {
    Problem::refused(format!("the tenant `{key}` is in no store; `queue-worker stores place` places it, and so does its first enqueue"))
}

/// Runs `stores place`, which places a new tenant into a store.
pub(super) async fn place(settings: &Settings, key: &str, store: &str, as_json: bool) -> Result<(), Problem> {
    let opened = StoreSession::for_writing(settings, StoreScope::Home).await?;
    let record = opened.record(store)?;
    let is_new = match opened.stores.place(key, store).await {
        Err(Error::NoStore { .. }) if !record.is_open => {
            return Err(Problem::refused(format!("the store `{store}` is closed; `queue-worker stores add` opens it again")));
        }
        placed => placed?,
    };
    let place = query_home(settings, opened.stores.look_up(key)).await?.ok_or_else(|| not_placed(key))?;
    opened.close().await;
    if place.store != store {
        return Err(Problem::refused(format!(
            "the tenant `{key}` is in the store `{}`; move it with `queue-worker stores move`",
            place.store
        )));
    }
    if as_json {
        return print::json(&json!({ "key": key, "store": store, "is_new": is_new }));
    }
    print::lines(&format!("the tenant `{key}` is in the store `{store}`{}", if is_new { "" } else { " already" }))
}

/// Runs `stores moves`, which lists moving tenants.
pub(super) async fn moves(settings: &Settings, as_json: bool) -> Result<(), Problem> {
    let opened = StoreSession::for_reading(settings, StoreScope::Home).await?;
    let moves = query_home(settings, opened.stores.moves()).await?;
    opened.close().await;
    if as_json {
        return print::json(&json!({ "moves": moves }));
    }
    if moves.is_empty() {
        return print::lines("no tenants are moving");
    }
    let rows = moves.into_iter().map(|Move { key, from, to, since, is_fenced, .. }| {
        let step = if is_fenced { "its jobs there still run" } else { "transactions that enqueue there may be open" };
        [key, from, to, since.map(print::time).unwrap_or_default(), step.to_owned()]
    });
    print::lines(&print::table(["tenant", "from", "to", "since", "waits because"], rows))
}

/// Runs `stores move`, which starts or continues a move. With `--wait`, waits until the move is finished.
pub(super) async fn move_tenant(settings: &Settings, (key, to): (&str, &str), is_awaited: bool, as_json: bool) -> Result<(), Problem> {
    // A signal ends the wait but not the move.
    let stop = shutdown_signal();
    let mut opened = StoreSession::for_writing(settings, StoreScope::Home).await?;
    let is_open = opened.record(to)?.is_open;
    let place = query_home(settings, opened.stores.look_up(key)).await?.ok_or_else(|| not_placed(key))?;
    opened
        .connect_stores(
            settings,
            &[Some(&place.store), place.leaves.as_ref(), Some(&to.to_owned())].into_iter().flatten().collect::<Vec<_>>(),
        )
        .await?;
    let from = match place.leaves {
        Some(from) if place.store == to => from,
        Some(from) => {
            return Err(Problem::refused(format!(
                "the tenant `{key}` moves from `{from}` to `{}` still; wait until that is finished: `queue-worker stores moves`",
                place.store
            )));
        }
        None if place.store == to => return Err(Problem::refused(format!("the tenant `{key}` is in the store `{to}` already"))),
        None if !is_open => {
            return Err(Problem::refused(format!("the store `{to}` is closed; `queue-worker stores add` opens it again")));
        }
        None => {
            // Both stores must be available: the old store finishes its jobs, and the new store takes over.
            opened.store(to).await?;
            opened.store(&place.store).await?;
            opened.stores.move_tenant(key, to).await?;
            place.store
        }
    };
    opened.member(&from)?;
    let mut state = advance(&opened, (key, &from), MoveState::Fencing).await?;
    if is_awaited {
        tokio::select! {
            result = wait_until_finished(&opened, (key, &from), state) => state = result?,
            () = stop => {
                let message = format!("interrupted while waiting for the tenant `{key}`, whose move continues; see `queue-worker stores moves`");
                return Err(Problem::failed(message));
            }
        }
    }
    opened.close().await;
    let left = if let MoveState::Draining(left) = state { Some(left) } else { None };
    if as_json {
        return print::json(&json!({ "key": key, "from": from, "to": to, "is_over": state == MoveState::Over, "left": left }));
    }
    print::lines(&match state {
        MoveState::Over => format!("the tenant `{key}` has moved from `{from}` to `{to}`"),
        state => {
            format!("the tenant `{key}` moves from `{from}` to `{to}`: {}; `stores run` workers complete it", describe_state(&state, &from))
        }
    })
}

/// Runs `stores drain`, which closes a store and starts to move all its tenants. With `--wait`, waits until they have moved.
pub(super) async fn drain(settings: &Settings, (name, to): (&str, Option<&str>), is_awaited: bool, as_json: bool) -> Result<(), Problem> {
    let stop = shutdown_signal();
    let opened = StoreSession::for_writing(settings, StoreScope::All).await?;
    for store in std::iter::once(name).chain(to) {
        opened.record(store)?;
    }
    let started = match opened.stores.drain(name, to).await {
        Err(Error::NoStore { .. }) => {
            let target = to.map_or("no other store is open".to_owned(), |to| format!("the store `{to}` is closed, or is this store"));
            return Err(Problem::refused(format!("{target}, so the tenants stay; `queue-worker stores add` adds or opens a store")));
        }
        started => started?,
    };
    if is_awaited {
        tokio::select! {
            finished = finish_moves(settings, &opened, name) => finished?,
            () = stop => return Err(Problem::failed("interrupted while waiting for moves, which continue; see `queue-worker stores moves`")),
        }
    }
    let left = moves_from(settings, &opened, name).await?.len();
    opened.close().await;
    if as_json {
        return print::json(&json!({ "drained": name, "started": started, "moving": left }));
    }
    print::lines(&match left {
        0 => format!("all tenants have left the store `{name}`, which takes no new tenants"),
        left => {
            format!("{left} tenants are leaving the store `{name}`, which takes no new tenants; `stores run` workers complete the moves")
        }
    })
}

/// Returns the moves out of the store.
async fn moves_from(settings: &Settings, opened: &StoreSession, name: &str) -> Result<Vec<Move>, Problem> {
    let moves = query_home(settings, opened.stores.moves()).await?;
    Ok(moves.into_iter().filter(|moving| moving.from == name).collect())
}

/// Advances all moves out of the store until they are finished. Moves to stores that this process cannot reach are only awaited, because
/// workers complete these moves.
async fn finish_moves(settings: &Settings, opened: &StoreSession, name: &str) -> Result<(), Problem> {
    loop {
        let moves = moves_from(settings, opened, name).await?;
        if moves.is_empty() {
            return Ok(());
        }
        for Move { key, from, .. } in moves.iter().filter(|moving| opened.member(&moving.to).is_ok()) {
            advance(opened, (key, from), MoveState::Fencing).await?;
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Advances a move by one step and returns its new state. After a lock timeout, returns the state `before`, so that a later call retries
/// the step.
async fn advance(opened: &StoreSession, (key, from): (&str, &str), before: MoveState) -> Result<MoveState, Problem> {
    let passes = |error: &Error| match error {
        Error::Database(error) => error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == "55P03"),
        _ => false,
    };
    match opened.stores.go_on(key).await {
        Err(error) if passes(&error) => Ok(before),
        Err(error) => {
            let FailedStore { store, error } = FailedStore::from(from, &error);
            Err(Problem::failed(format!("the store `{store}`: {error}; the move has started, and the same command continues it")))
        }
        Ok(state) => Ok(state),
    }
}

async fn wait_until_finished(opened: &StoreSession, (key, from): (&str, &str), mut state: MoveState) -> Result<MoveState, Problem> {
    let (mut is_first, mut reported) = (true, None);
    while state != MoveState::Over {
        if reported.as_ref() != Some(&state) && (is_first || stderr().is_terminal()) {
            replace_note(&format!("{}; Ctrl-C ends the wait, not the move", describe_state(&state, from)), is_first);
            is_first = false;
        }
        sleep(POLL_INTERVAL).await;
        let next = advance(opened, (key, from), state.clone()).await?;
        reported = Some(std::mem::replace(&mut state, next));
    }
    Ok(state)
}

fn describe_state(state: &MoveState, from: &str) -> String {
    match state {
        MoveState::Draining(left) => format!("{left} of its jobs wait or run in `{from}`"),
        MoveState::Fencing => format!("transactions that enqueue into `{from}` are open"),
        _ => format!("it is leaving `{from}`"),
    }
}
