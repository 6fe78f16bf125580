//! Writes a flow: one job per node, the edges between nodes, and the member jobs of nodes with many jobs.

use std::{borrow::Cow, mem, slice::from_ref};

use super::{
    gather::ManyJobs,
    plan::{CheckedFlow, Edges},
};
use crate::{
    define::{Durability, EnqueueOutcome, JobId},
    enqueue::{
        EnqueueOptions,
        bulk::write_within,
        insert,
        places::{BulkResult, EnqueueRows},
        row::EnqueueRow,
        store_error,
        system::Membership,
    },
    error::Error,
    schema::{Connection, Session, Store},
};

/// Maximum number of jobs that one statement records as parts of a node.
const CHUNK: usize = 1000;

/// Writes the flow in one transaction. Returns the ids of the nodes' jobs.
pub(super) async fn write(
    on: Connection<'_>,
    (store, durability): (Store, Option<Durability>),
    flow: &mut CheckedFlow,
) -> Result<Vec<JobId>, Error> {
    let to_error = |error| store_error(error, store);
    let mut session = Session::begin(on, durability.unwrap_or(Durability::Full)).await.map_err(to_error)?;
    match write_all(&mut session, store, flow).await {
        Ok(ids) => session.commit().await.map(|()| ids).map_err(to_error),
        Err(error) => {
            session.roll_back().await;
            Err(error)
        }
    }
}

async fn write_all(session: &mut Session<'_>, store: Store, flow: &mut CheckedFlow) -> Result<Vec<JobId>, Error> {
    let many = mem::take(&mut flow.many);
    let CheckedFlow { names, jobs, options, edges, .. } = flow;
    let of_node = |at: usize, source| Error::Node { node: names[at].clone(), source: Box::new(source) };
    let rows = jobs.iter().zip(&*options).enumerate();
    let rows = rows
        .map(|(at, (job, options))| EnqueueRow::for_store(store, Cow::Borrowed(job), options, at).map_err(|source| of_node(at, source)));
    let written = rows_within(session, store, options, Box::new(rows)).await;
    let written = written.map_err(|error| match error {
        Error::OneOfMany { index, source } if index < names.len() => Error::Node { node: names[index].clone(), source },
        other => other,
    });
    let written = written?;
    if let Some(at) = find_conflict(&written) {
        return Err(of_node(at, key_held_error()));
    }
    let ids = written.ids.unwrap_or_default();
    link(session, store, &ids, names, edges).await?;
    for (at, many) in many {
        add_parts(session, store, ids[at], many).await.map_err(|source| of_node(at, source))?;
    }
    Ok(ids)
}

/// Returns the index of the first job that was not created because another job holds its uniqueness key.
fn find_conflict(written: &BulkResult) -> Option<usize> {
    written.outcomes.iter().position(|outcome| *outcome != EnqueueOutcome::New)
}

fn key_held_error() -> Error {
    Error::OutOfRange {
        what: "its uniqueness key",
        value: "held by another job".to_owned(),
        range: "free, because a flow contains only new jobs",
    }
}

async fn rows_within(
    session: &mut Session<'_>,
    store: Store,
    options: &[EnqueueOptions],
    mut rows: EnqueueRows<'_>,
) -> Result<BulkResult, Error> {
    let mut written = BulkResult { count: 0, ids: Some(Vec::new()), outcomes: Vec::new() };
    let first = insert::next_chunk(&mut rows).await?;
    if !first.is_empty() {
        write_within(session, store, options, (first, rows), &mut written).await?;
    }
    Ok(written)
}

async fn link(session: &mut Session<'_>, store: Store, ids: &[JobId], names: &[String], edges: &Edges) -> Result<(), Error> {
    let link = sqlx::query(store.sql(include_str!("../../../sql/link_flow.sql"))).bind(ids).bind(names);
    let link = link.bind(&edges.sources).bind(&edges.targets).bind(&edges.on_dead).bind(&edges.if_dead).bind(&edges.passes_output);
    link.execute(session.connection()).await.map(drop).map_err(|error| store_error(error, store))
}

/// Writes the jobs of a node with many jobs and records them as parts of the node.
async fn add_parts(session: &mut Session<'_>, store: Store, node: JobId, many: ManyJobs) -> Result<(), Error> {
    let ManyJobs { jobs, mut options, in_flight } = many;
    options.system = Some(Membership::PartOf(format!("{node}/jobs")));
    options.check()?;
    let most = in_flight.map(i32::try_from).transpose().ok().filter(|most| most.is_none_or(|most| most > 0));
    let most = most.ok_or_else(|| {
        let value = in_flight.unwrap_or_default().to_string();
        Error::OutOfRange { what: "in_flight", value, range: "1 to 2147483647" }
    })?;
    let one = |index, source| Error::OneOfMany { index, source: Box::new(source) };
    let rows = jobs.enumerate().map(|(index, job)| {
        let row = job.and_then(|job| EnqueueRow::for_store(store, Cow::Owned(job), &options, 0));
        row.map_err(|error| one(index, error))
    });
    let written = rows_within(session, store, from_ref(&options), Box::new(rows)).await?;
    if let Some(index) = find_conflict(&written) {
        return Err(one(index, key_held_error()));
    }
    let ids = written.ids.unwrap_or_default();
    // The statement runs at least once, so that a node without jobs can complete.
    for chunk in 0..ids.len().div_ceil(CHUNK).max(1) {
        let (first, end) = (chunk * CHUNK, ids.len().min((chunk + 1) * CHUNK));
        let total = (end == ids.len()).then_some(ids.len() as i64);
        let add = sqlx::query(store.sql(include_str!("../../../sql/add_parts.sql"))).bind(node).bind(chunk as i32).bind(first as i64);
        let add = add.bind(&ids[first..end]).bind(most).bind(total);
        add.execute(session.connection()).await.map_err(|error| store_error(error, store))?;
    }
    Ok(())
}
