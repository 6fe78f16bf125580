//! Where tenants are, and moving them.

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
    open::{About, Opened, at_home},
    told::Trouble,
};
use crate::{
    cli::{
        print,
        problem::{Problem, note_again},
        settings::Settings,
    },
    live::shutdown_signal,
};

/// How often it is looked how far a move is.
const AGAIN: Duration = Duration::from_millis(500);

/// `where`: as it stands at home. Nobody is placed.
pub(super) async fn find(settings: &Settings, key: &str, as_json: bool) -> Result<(), Problem> {
    let opened = Opened::to_look(settings, About::Home).await?;
    let place = at_home(settings, opened.stores.look_up(key)).await?.ok_or_else(|| nowhere(key))?;
    opened.close().await;
    if as_json {
        return print::json(&place);
    }
    let PlaceRecord { store, leaves, is_fenced, moved_at, .. } = place;
    let since = moved_at.map_or_else(String::new, |at| format!(" since {}", print::time(at)));
    print::lines(&match leaves {
        Some(from) if is_fenced => format!("{store}, and leaves {from}{since}: its jobs there are run still"),
        Some(from) => format!("{store}, and leaves {from}{since}: transactions that enqueue there may be open"),
        None => store,
    })
}

fn nowhere(key: &str) -> Problem {
    Problem::refused(format!(
        "the tenant `{key}` is in no store; `queue-worker stores place` puts it into one, and so does its first enqueue"
    ))
}

/// `place`: a new tenant.
pub(super) async fn place(settings: &Settings, key: &str, store: &str, as_json: bool) -> Result<(), Problem> {
    let opened = Opened::to_write(settings, About::Home).await?;
    let record = opened.record(store)?;
    let is_new = match opened.stores.place(key, store).await {
        Err(Error::NoStore { .. }) if !record.is_open => {
            return Err(Problem::refused(format!("the store `{store}` is closed; `queue-worker stores add` opens it again")));
        }
        placed => placed?,
    };
    let place = at_home(settings, opened.stores.look_up(key)).await?.ok_or_else(|| nowhere(key))?;
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

/// `moves`: who moves.
pub(super) async fn moves(settings: &Settings, as_json: bool) -> Result<(), Problem> {
    let opened = Opened::to_look(settings, About::Home).await?;
    let moves = at_home(settings, opened.stores.moves()).await?;
    opened.close().await;
    if as_json {
        return print::json(&json!({ "moves": moves }));
    }
    if moves.is_empty() {
        return print::lines("no tenant moves");
    }
    let rows = moves.into_iter().map(|Move { key, from, to, since, is_fenced, .. }| {
        let step = if is_fenced { "its jobs there are run still" } else { "transactions that enqueue there may be open" };
        [key, from, to, since.map(print::time).unwrap_or_default(), step.to_owned()]
    });
    print::lines(&print::table(["tenant", "from", "to", "since", "waits, as"], rows))
}

/// `move`: begins it, or goes on with it, and waits for its end if that is wanted.
pub(super) async fn move_tenant(settings: &Settings, (key, to): (&str, &str), is_awaited: bool, as_json: bool) -> Result<(), Problem> {
    // Who ends the wait does not end the move.
    let stop = shutdown_signal();
    let mut opened = Opened::to_write(settings, About::Home).await?;
    let is_open = opened.record(to)?.is_open;
    let place = at_home(settings, opened.stores.look_up(key)).await?.ok_or_else(|| nowhere(key))?;
    opened
        .reach_stores(
            settings,
            &[Some(&place.store), place.leaves.as_ref(), Some(&to.to_owned())].into_iter().flatten().collect::<Vec<_>>(),
        )
        .await?;
    let from = match place.leaves {
        Some(from) if place.store == to => from,
        Some(from) => {
            return Err(Problem::refused(format!(
                "the tenant `{key}` moves from `{from}` to `{}` still; wait until that is over: `queue-worker stores moves`",
                place.store
            )));
        }
        None if place.store == to => return Err(Problem::refused(format!("the tenant `{key}` is in the store `{to}` already"))),
        None if !is_open => {
            return Err(Problem::refused(format!("the store `{to}` is closed; `queue-worker stores add` opens it again")));
        }
        None => {
            // Those of which it is run to its end, and then runs.
            opened.store(to).await?;
            opened.store(&place.store).await?;
            opened.stores.move_tenant(key, to).await?;
            place.store
        }
    };
    opened.member(&from)?;
    let mut state = go_on(&opened, (key, &from), MoveState::Fencing).await?;
    if is_awaited {
        tokio::select! {
            over = until_over(&opened, (key, &from), state) => state = over?,
            () = stop => {
                let said = format!("nobody waits any more for the tenant `{key}`, and it moves on; see `queue-worker stores moves`");
                return Err(Problem::failed(said));
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
        state => format!("the tenant `{key}` moves from `{from}` to `{to}`: {}; workers that tend to stores end it", said(&state, &from)),
    })
}

/// A step, as far as it goes. Whoever has something locked meanwhile is only in the way of this one.
async fn go_on(opened: &Opened, (key, from): (&str, &str), before: MoveState) -> Result<MoveState, Problem> {
    let passes = |error: &Error| match error {
        Error::Database(error) => error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == "55P03"),
        _ => false,
    };
    match opened.stores.go_on(key).await {
        Err(error) if passes(&error) => Ok(before),
        Err(error) => {
            let Trouble { store, error } = Trouble::from(from, &error);
            Err(Problem::failed(format!("the store `{store}`: {error}; the move has begun, and the same command goes on with it")))
        }
        Ok(state) => Ok(state),
    }
}

async fn until_over(opened: &Opened, (key, from): (&str, &str), mut state: MoveState) -> Result<MoveState, Problem> {
    let (mut is_first, mut told) = (true, None);
    while state != MoveState::Over {
        if told.as_ref() != Some(&state) && (is_first || stderr().is_terminal()) {
            note_again(&format!("{}; Ctrl-C ends the wait, not the move", said(&state, from)), is_first);
            is_first = false;
        }
        sleep(AGAIN).await;
        let next = go_on(opened, (key, from), state.clone()).await?;
        told = Some(std::mem::replace(&mut state, next));
    }
    Ok(state)
}

fn said(state: &MoveState, from: &str) -> String {
    match state {
        MoveState::Draining(left) => format!("{left} of its jobs wait or run in `{from}`"),
        MoveState::Fencing => format!("transactions are open that enqueue into `{from}`"),
        _ => format!("it leaves `{from}`"),
    }
}
