//! Looks at the stores of a database that have no worker: many by one statement, several times a second.

use std::{sync::Arc, time::Duration};

use sqlx::AssertSqlSafe;

use super::{
    site::{SCOUT, Site},
    watched::Watched,
};
use crate::{
    error::{complain, said, transient},
    live::{Link, Wires, bounded},
};

/// How long a job waits at most until a store that has no worker is seen to have it.
const LOOK: Duration = Duration::from_millis(250);

/// So many stores are asked by one statement: each of them locks some twenty relations and indexes for its length, which a server counts.
const TOGETHER: usize = 16;

/// What there is to do in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rouse {
    Nothing,
    Something,
}

/// For ever.
pub(super) async fn scout(site: Arc<Site>) {
    let mut link = link(&site.wires(SCOUT));
    loop {
        let all = site.all();
        if let Err(error) = look(&mut link, &all).await {
            complain(&error, "cannot look at stores now; trying again");
            tokio::time::sleep(LOOK).await;
        }
        tokio::time::sleep(LOOK.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
    }
}

/// For looks of which none is to wait for a lock.
pub(super) fn link(wires: &Wires) -> Link {
    Link::new(wires, "scout").prompt().brief()
}

/// Stores that work stay together, so that their statements stay the same. Fails only with the database.
async fn look(link: &mut Link, all: &[Arc<Watched>]) -> sqlx::Result<()> {
    let mut well: Vec<&Arc<Watched>> = all.iter().filter(|watched| !watched.is_troubled()).collect();
    well.sort_by(|one, other| (&one.served, one.number).cmp(&(&other.served, other.number)));
    for served in well.chunk_by(|one, other| one.served == other.served) {
        for group in served.chunks(TOGETHER).filter(|group| !group.iter().all(|watched| watched.is_awake())) {
            match ask(link, group).await {
                Ok(found) => tell(group, &found),
                Err(error) if is_lost(&error) => return Err(error),
                // One of them, or several: each by itself.
                Err(_) => {
                    for watched in group {
                        look_at(link, watched).await?;
                    }
                }
            }
        }
    }
    for watched in all.iter().filter(|watched| watched.may_be_well()) {
        look_at(link, watched).await?;
    }
    Ok(())
}

async fn look_at(link: &mut Link, watched: &Arc<Watched>) -> sqlx::Result<()> {
    match ask(link, &[watched]).await {
        Ok(found) => {
            watched.is_in_reach();
            tell(&[watched], &found);
        }
        Err(error) if is_lost(&error) => return Err(error),
        Err(error) => watched.note_out_of_reach(&said(&error)),
    }
    Ok(())
}

/// Whether it is the database that failed, and not a store.
fn is_lost(error: &sqlx::Error) -> bool {
    let is_locked = error.as_database_error().is_some_and(|error| error.code().is_some_and(|code| code == "55P03" || code == "57014"));
    transient(error) && !is_locked
}

fn tell(group: &[&Arc<Watched>], found: &[Rouse]) {
    for (watched, _) in group.iter().zip(found).filter(|(_, rouse)| **rouse == Rouse::Something) {
        watched.rouse();
    }
}

/// What there is to do in each of these stores, which serve the same.
pub(super) async fn ask(link: &mut Link, group: &[&Arc<Watched>]) -> sqlx::Result<Vec<Rouse>> {
    let Some(served) = group.first().map(|first| &first.served) else { return Ok(Vec::new()) };
    let one = |(nth, watched): (usize, &&Arc<Watched>)| {
        let what = watched.member.store().sql(include_str!("../../sql/rouse.sql"));
        format!("select {nth} as nth, s.what from (\n{what}\n) s")
    };
    let text = group.iter().enumerate().map(one).collect::<Vec<_>>().join("\nunion all\n") + "\norder by nth";
    let query = sqlx::query_as(AssertSqlSafe(text)).bind(&served.types).bind(&served.queues);
    let found = bounded(query.fetch_all(link.get().await?)).await;
    let found: Vec<(i32, i32)> = link.note(found)?;
    Ok(found.into_iter().map(|(_, what)| if what == 0 { Rouse::Nothing } else { Rouse::Something }).collect())
}
