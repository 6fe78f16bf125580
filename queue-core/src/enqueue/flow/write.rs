//! A flow on its way to the database: its jobs, its edges, and the jobs of those nodes that are many.

use std::{borrow::Cow, mem, slice::from_ref};

use super::{
    gather::Many,
    plan::{Checked, Edges},
};
use crate::{
    define::{Durability, Enqueued, JobId},
    enqueue::{
        EnqueueOptions,
        bulk::write_within,
        explain, insert,
        places::{Rows, Written},
        row::Row,
        system::Awaited,
    },
    error::Error,
    schema::{Connection, Session, Store},
};

/// Parts go together into one row of the store's.
const CHUNK: usize = 1000;

/// Writes all of it in one transaction; returns the ids of its nodes' jobs.
pub(super) async fn write(
    on: Connection<'_>,
    (store, durability): (Store, Option<Durability>),
    flow: &mut Checked,
) -> Result<Vec<JobId>, Error> {
    let to_error = |error| explain(error, store);
    let mut session = Session::begin(on, durability.unwrap_or(Durability::Full)).await.map_err(to_error)?;
    match write_all(&mut session, store, flow).await {
        Ok(ids) => session.commit().await.map(|()| ids).map_err(to_error),
        Err(error) => {
            session.roll_back().await;
            Err(error)
        }
    }
}

async fn write_all(session: &mut Session<'_>, store: Store, flow: &mut Checked) -> Result<Vec<JobId>, Error> {
    let many = mem::take(&mut flow.many);
    let Checked { names, jobs, options, edges, .. } = flow;
    let of_node = |at: usize, source| Error::Node { node: names[at].clone(), source: Box::new(source) };
    let rows = jobs.iter().zip(&*options).enumerate();
    let rows = rows.map(|(at, (job, options))| Row::to(store, Cow::Borrowed(job), options, at).map_err(|source| of_node(at, source)));
    let written = rows_within(session, store, options, Box::new(rows)).await;
    let written = written.map_err(|error| match error {
        Error::OneOfMany { index, source } if index < names.len() => Error::Node { node: names[index].clone(), source },
        other => other,
    });
    let written = written?;
    if let Some(at) = held(&written) {
        return Err(of_node(at, not_new()));
    }
    let ids = written.ids.unwrap_or_default();
    link(session, store, &ids, names, edges).await?;
    for (at, many) in many {
        add_parts(session, store, ids[at], many).await.map_err(|source| of_node(at, source))?;
    }
    Ok(ids)
}

/// The first that is no new job, if any is not.
fn held(written: &Written) -> Option<usize> {
    written.outcomes.iter().position(|outcome| *outcome != Enqueued::New)
}

fn not_new() -> Error {
    Error::OutOfRange { what: "its uniqueness key", value: "held by another job".to_owned(), range: "free: a job of a flow is a new one" }
}

async fn rows_within(session: &mut Session<'_>, store: Store, options: &[EnqueueOptions], mut rows: Rows<'_>) -> Result<Written, Error> {
    let mut written = Written { count: 0, ids: Some(Vec::new()), outcomes: Vec::new() };
    let first = insert::fill(&mut rows).await?;
    if !first.is_empty() {
        write_within(session, store, options, (first, rows), &mut written).await?;
    }
    Ok(written)
}

async fn link(session: &mut Session<'_>, store: Store, ids: &[JobId], names: &[String], edges: &Edges) -> Result<(), Error> {
    let link = sqlx::query(store.sql(include_str!("../../../sql/link_flow.sql"))).bind(ids).bind(names);
    let link = link.bind(&edges.sources).bind(&edges.targets).bind(&edges.on_dead).bind(&edges.if_dead).bind(&edges.gives);
    link.execute(session.connection()).await.map(drop).map_err(|error| explain(error, store))
}

/// Writes the jobs of a node that is many, and says that they are its.
async fn add_parts(session: &mut Session<'_>, store: Store, node: JobId, many: Many) -> Result<(), Error> {
    let Many { jobs, mut options, in_flight } = many;
    options.system = Some(Awaited::PartOf(format!("{node}/jobs")));
    options.check()?;
    let most = in_flight.map(i32::try_from).transpose().ok().filter(|most| most.is_none_or(|most| most > 0));
    let most = most.ok_or_else(|| {
        let value = in_flight.unwrap_or_default().to_string();
        Error::OutOfRange { what: "in_flight", value, range: "1 to 2147483647" }
    })?;
    let one = |index, source| Error::OneOfMany { index, source: Box::new(source) };
    let rows = jobs.enumerate().map(|(index, job)| {
        let row = job.and_then(|job| Row::to(store, Cow::Owned(job), &options, 0));
        row.map_err(|error| one(index, error))
    });
    let written = rows_within(session, store, from_ref(&options), Box::new(rows)).await?;
    if let Some(index) = held(&written) {
        return Err(one(index, not_new()));
    }
    let ids = written.ids.unwrap_or_default();
    // At least once, so that a node without jobs has completed.
    for chunk in 0..ids.len().div_ceil(CHUNK).max(1) {
        let (first, end) = (chunk * CHUNK, ids.len().min((chunk + 1) * CHUNK));
        let total = (end == ids.len()).then_some(ids.len() as i64);
        let add = sqlx::query(store.sql(include_str!("../../../sql/add_parts.sql"))).bind(node).bind(chunk as i32).bind(first as i64);
        let add = add.bind(&ids[first..end]).bind(most).bind(total);
        add.execute(session.connection()).await.map_err(|error| explain(error, store))?;
    }
    Ok(())
}
