//! Many jobs that a durable job spawns by one step: encoded and written a chunk at a time, as a bulk enqueue writes them.

use std::{
    borrow::Cow,
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
    slice::from_ref,
    sync::Arc,
};

use tracing::Instrument as _;

use super::{
    bulk,
    hooks::call_hooks,
    options::{EnqueueOptions, option_methods},
    row::{Encoded, Row},
    run::Run,
    system::Awaited,
};
use crate::{
    context::{ChunkPosition, Durable, OwnedTransaction, StepName, connection},
    define::{Enqueued, Failure, JobId, JobResult, JobType},
    error::Error,
    schema::{Connection, Store},
    trace,
};

/// A chunk has at most so many jobs, or bytes of payloads.
const CHUNK: usize = 1000;
const CHUNK_BYTES: usize = 2 * 1024 * 1024;

impl Durable {
    /// Spawns a job for each of these, of one type, which run wherever their queue is served, beside this one and each other. Say what differs from
    /// the type's options, of all of them, then await it; the [`Parts`] are waited for together with [`join`](Parts::join).
    ///
    /// A thousand of them are one commit, so there may be a million. An attempt that ends half-way has spawned the first of them, and the next goes on
    /// after those: it runs the iterator from its start, which has to give the same jobs in the same order. Once all are there, that is journaled as
    /// one step, and the iterator is not run any more.
    ///
    /// They run even if this job fails or dies; cancelling it cancels them.
    ///
    /// # Errors
    /// Terminal: a name that this attempt has asked for already, that is journaled as another step, or that has more than 193 bytes; and an iterator
    /// that gives fewer jobs than an earlier attempt has spawned. As of an enqueue: [`Error::AtCapacity`](crate::Error::AtCapacity),
    /// [`Error::OneOfMany`](crate::Error::OneOfMany), [`Error::OutOfRange`](crate::Error::OutOfRange), [`Error::Database`](crate::Error::Database);
    /// and a failure if another job holds the uniqueness key of one, which is not spawned here then. [`Error::LeaseLost`](crate::Error::LeaseLost) when
    /// others have the job, or somebody cancels it.
    ///
    /// ```
    /// # use queue_core::{Durable, JobResult, job};
    /// #[job(send_only, output = u64)]
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Resize {
    ///     image: i64,
    /// }
    ///
    /// # async fn example(cx: &Durable) -> JobResult {
    /// let thumbs = cx.map("resize", (1..=10_000).map(|image| Resize { image })).queue("images").in_flight(50).await?;
    /// let ended = thumbs.join().await?; // holds no slot meanwhile
    /// println!("{} of {} are there", ended.completed, ended.total);
    /// let mut outputs = ended.outputs();
    /// while let Some(page) = outputs.next_page().await? {
    ///     for (place, output) in page {
    ///         match output {
    ///             Ok(bytes) => println!("{place}: {bytes} bytes"),
    ///             Err(error) => println!("{place}: {error}"),
    ///         }
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn map<J, I>(&self, name: impl Into<StepName>, jobs: I) -> Map<'_, I::IntoIter>
    where
        J: JobType,
        I: IntoIterator<Item = J>,
        I::IntoIter: Send,
    {
        Map { cx: self, name: name.into(), jobs: jobs.into_iter(), options: EnqueueOptions::of::<J>(), in_flight: None }
    }
}

/// Jobs that a durable job is about to spawn; from [`Durable::map`].
#[must_use = "nothing is spawned until this is awaited"]
pub struct Map<'c, I> {
    cx: &'c Durable,
    name: StepName,
    jobs: I,
    options: EnqueueOptions,
    in_flight: Option<u32>,
}

impl<'c, I> Map<'c, I>
where
    I: Iterator<Item: JobType> + Send + 'c,
{
    option_methods!((mut self) -> Self, self);

    fn said(&mut self) -> &mut EnqueueOptions {
        &mut self.options
    }

    /// At most so many of them are ready or running at once, at least 1: the others are `parked`, in their order, until some have ended. Those that
    /// wait for another try count, and a dead letter does not. Default: all. With a time to run at it is refused. One with an ordering key is not
    /// parked, but counts.
    pub fn in_flight(mut self, most: u32) -> Self {
        self.in_flight = Some(most);
        self
    }

    async fn go(self) -> JobResult<Parts<'c, I::Item>> {
        let Self { cx, name, jobs, mut options, in_flight } = self;
        let (name, known) = cx.journaled_map(name)?;
        let total = if let Some(total) = known {
            total
        } else {
            let most = checked(in_flight, &options)?;
            call_hooks(&mut options);
            let span = trace::enqueue_span(Some(&options.queue), Some(options.job_type));
            options.carry(trace::current_context(&span).as_ref());
            options.system = Some(Awaited::PartOf(format!("{}/{name}", cx.id())));
            options.check()?;
            let spawned = spawn(cx, &name, jobs, options, most).instrument(span.clone()).await;
            trace::record_bulk_enqueue(&span, spawned.as_ref().map(|total| total.unsigned_abs()));
            spawned?
        };
        Ok(Parts { cx, name, total, job: PhantomData })
    }
}

fn checked(in_flight: Option<u32>, options: &EnqueueOptions) -> Result<Option<i32>, Error> {
    let Some(most) = in_flight else { return Ok(None) };
    if !matches!(options.run, Run::Now) {
        return Err(Error::OutOfRange {
            what: "the time to run at",
            value: "given".to_owned(),
            range: "not said together with `in_flight`",
        });
    }
    match i32::try_from(most) {
        Ok(most) if most > 0 => Ok(Some(most)),
        _ => Err(Error::OutOfRange { what: "in_flight", value: most.to_string(), range: "1 to 2147483647" }),
    }
}

/// Returns how many there are.
async fn spawn<I>(cx: &Durable, name: &str, mut jobs: I, options: EnqueueOptions, most: Option<i32>) -> Result<i64, Failure>
where
    I: Iterator<Item: JobType> + Send,
{
    let (_under_way, store, options) = (cx.hold_attempt(), cx.shared().store, Arc::new(options));
    let so_far = cx.load_map_progress(name).await?;
    let (mut chunk, mut first) = (so_far.chunks, so_far.spawned);
    for _ in 0..first {
        if jobs.next().is_none() {
            return Err(cx.map_mismatch(name));
        }
    }
    loop {
        let rows = fill(&mut jobs, store, &options, first)?;
        if rows.is_empty() {
            break;
        }
        let (count, at, options) = (rows.len() as i64, ChunkPosition { chunk, first, most }, Arc::clone(&options));
        cx.add_chunk(name, at, move |tx| write(tx, store, options, rows, first)).await?;
        (chunk, first) = (chunk + 1, first + count);
        // An iterator that gives jobs at once is not all that runs here.
        tokio::task::yield_now().await;
    }
    cx.close_map(name, first).await?;
    Ok(first)
}

/// The next chunk; empty at the end.
fn fill<I>(jobs: &mut I, store: Store, options: &EnqueueOptions, first: i64) -> Result<Vec<Row<'static>>, Error>
where
    I: Iterator<Item: JobType>,
{
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while rows.len() < CHUNK && bytes < CHUNK_BYTES {
        let Some(job) = jobs.next() else { break };
        let row = Encoded::of(&job).and_then(|job| Row::to(store, Cow::Owned(job), options, 0));
        let index = usize::try_from(first).unwrap_or(0) + rows.len();
        let row: Row<'static> = row.map_err(|error| Error::OneOfMany { index, source: Box::new(error) })?;
        bytes += row.size();
        rows.push(row);
    }
    Ok(rows)
}

/// Enqueues a chunk in the transaction; where nothing is enqueued, its jobs have ids of their own.
async fn write(
    tx: Option<OwnedTransaction>,
    store: Store,
    options: Arc<EnqueueOptions>,
    rows: Vec<Row<'static>>,
    first: i64,
) -> Result<(Option<OwnedTransaction>, Vec<JobId>), Failure> {
    let Some(mut tx) = tx else {
        return Ok((None, (0..rows.len() as i64).map(|n| JobId(2_000_000 + first + n)).collect()));
    };
    let on = Connection::One(connection(&mut tx));
    let written = bulk::write_all(on, store, None, from_ref(&*options), Box::new(rows.into_iter().map(Ok)), true).await?;
    let ids = written.ids.unwrap_or_default();
    if let Some(place) = written.outcomes.iter().position(|outcome| *outcome != Enqueued::New) {
        let held = ids.get(place).copied().unwrap_or(JobId(0));
        return Err(format!("the job {held} holds the uniqueness key of one that is mapped, and is not spawned here").into());
    }
    Ok((Some(tx), ids))
}

impl<'c, I> IntoFuture for Map<'c, I>
where
    I: Iterator<Item: JobType> + Send + 'c,
{
    type Output = JobResult<Parts<'c, I::Item>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.go())
    }
}

impl<I> fmt::Debug for Map<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("name", &self.name.name).field("options", &self.options).finish_non_exhaustive()
    }
}

/// The jobs that a durable job has mapped; from [`Durable::map`].
pub struct Parts<'c, J> {
    pub(crate) cx: &'c Durable,
    pub(crate) name: String,
    pub(crate) total: i64,
    job: PhantomData<fn() -> J>,
}

impl<J> Parts<'_, J> {
    /// How many there are.
    pub fn total(&self) -> u64 {
        self.total.unsigned_abs()
    }
}

impl<J> fmt::Debug for Parts<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("name", &self.name).field("total", &self.total).finish_non_exhaustive()
    }
}
