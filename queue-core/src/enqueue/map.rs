//! Map steps: a durable job spawns many jobs in one step. The jobs are encoded and written one chunk at a time, as in a bulk enqueue.

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
    row::{EncodedJob, EnqueueRow},
    start_time::StartTime,
    system::Membership,
};
use crate::{
    context::{ChunkPosition, Durable, OwnedTransaction, StepName, connection},
    define::{EnqueueOutcome, Failure, JobId, JobResult, JobType},
    error::Error,
    schema::{Connection, Store},
    trace,
};

/// Maximum number of jobs in a chunk.
const CHUNK: usize = 1000;

/// Total payload size in bytes at which a chunk is full. The last job may make the chunk larger.
const CHUNK_BYTES: usize = 2 * 1024 * 1024;

impl Durable {
    /// Spawns the jobs that an iterator returns, all of one type. The jobs run in parallel with this job, on any workers that serve their
    /// queue.
    ///
    /// Override options of the job type on the builder, then await the builder. To wait for all jobs, call [`join`](Parts::join) on the
    /// returned [`Parts`].
    ///
    /// The jobs are committed in chunks of up to a thousand, so a map can have a million jobs. If an attempt ends after it has spawned some
    /// of the jobs, the next attempt spawns the remaining jobs. The next attempt runs the iterator from the start, so the iterator must
    /// return the same jobs in the same order. Once all jobs are spawned, the map is journaled as one step, and later attempts do not run
    /// the iterator.
    ///
    /// The jobs run even if this job fails or becomes a dead letter. Cancelling this job cancels the spawned jobs.
    ///
    /// # Errors
    /// Fails terminally if the name was already used in this attempt, is journaled as a step of another kind, or exceeds 193 bytes. Also
    /// fails terminally if the iterator returns fewer jobs than an earlier attempt has spawned. Returns
    /// [`Error::AtCapacity`](crate::Error::AtCapacity), [`Error::OneOfMany`](crate::Error::OneOfMany),
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) and [`Error::Database`](crate::Error::Database) as an enqueue does. Fails if another
    /// job holds the uniqueness key of a mapped job; the chunk of that job is then not spawned. Returns
    /// [`Error::LeaseLost`](crate::Error::LeaseLost) if another worker holds this job, or if this job was cancelled.
    ///
    /// ```
    /// # use queue_core::{JobResult, durable::Durable, job};
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
        Map { cx: self, name: name.into(), jobs: jobs.into_iter(), options: EnqueueOptions::for_type::<J>(), in_flight: None }
    }
}

/// Builder for a map step, which spawns many jobs. Created by [`Durable::map`].
///
/// ```
/// # use queue_core::{JobResult, durable::Durable, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Resize { image: i64 }
/// # async fn example(cx: &Durable) -> JobResult {
/// let images = (1..=500).map(|image| Resize { image });
/// let thumbs = cx.map("resize", images).queue("images").in_flight(20).await?;
/// println!("{} jobs spawned", thumbs.total());
/// # Ok(()) }
/// ```
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

    fn options_mut(&mut self) -> &mut EnqueueOptions {
        &mut self.options
    }

    /// Limits the number of jobs that are ready or running at the same time. The minimum is 1. Default: unlimited.
    ///
    /// Jobs beyond the limit are `parked`. They become ready in the iterator's order as other jobs of the map end. Jobs that are waiting
    /// for a retry count towards the limit. Dead letters do not. The limit cannot be combined with a start time. A job with an ordering
    /// key is not parked, but counts towards the limit.
    pub fn in_flight(mut self, most: u32) -> Self {
        self.in_flight = Some(most);
        self
    }

    async fn run(self) -> JobResult<Parts<'c, I::Item>> {
        let Self { cx, name, jobs, mut options, in_flight } = self;
        let (name, known) = cx.journaled_map(name)?;
        let total = if let Some(total) = known {
            total
        } else {
            let most = check_in_flight(in_flight, &options)?;
            call_hooks(&mut options);
            let span = trace::enqueue_span(Some(&options.queue), Some(options.job_type));
            options.add_trace(trace::current_context(&span).as_ref());
            options.system = Some(Membership::PartOf(format!("{}/{name}", cx.id())));
            options.check()?;
            let spawned = spawn(cx, &name, jobs, options, most).instrument(span.clone()).await;
            trace::record_bulk_enqueue(&span, spawned.as_ref().map(|total| total.unsigned_abs()));
            spawned?
        };
        Ok(Parts { cx, name, total, job: PhantomData })
    }
}

fn check_in_flight(in_flight: Option<u32>, options: &EnqueueOptions) -> Result<Option<i32>, Error> {
    let Some(most) = in_flight else { return Ok(None) };
    if !matches!(options.run, StartTime::Now) {
        return Err(Error::OutOfRange { what: "the time to run at", value: "given".to_owned(), range: "unset if `in_flight` is used" });
    }
    match i32::try_from(most) {
        Ok(most) if most > 0 => Ok(Some(most)),
        _ => Err(Error::OutOfRange { what: "in_flight", value: most.to_string(), range: "1 to 2147483647" }),
    }
}

/// Spawns the jobs that no earlier attempt has spawned, then closes the map. Returns the total number of jobs.
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
        let rows = next_chunk(&mut jobs, store, &options, first)?;
        if rows.is_empty() {
            break;
        }
        let (count, at, options) = (rows.len() as i64, ChunkPosition { chunk, first, most }, Arc::clone(&options));
        cx.add_chunk(name, at, move |tx| write(tx, store, options, rows, first)).await?;
        (chunk, first) = (chunk + 1, first + count);
        // The iterator runs synchronously, so this task yields to other tasks of its thread after each chunk.
        tokio::task::yield_now().await;
    }
    cx.close_map(name, first).await?;
    Ok(first)
}

/// Returns the next chunk of jobs. The chunk is empty if no jobs remain.
fn next_chunk<I>(jobs: &mut I, store: Store, options: &EnqueueOptions, first: i64) -> Result<Vec<EnqueueRow<'static>>, Error>
where
    I: Iterator<Item: JobType>,
{
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while rows.len() < CHUNK && bytes < CHUNK_BYTES {
        let Some(job) = jobs.next() else { break };
        let row = EncodedJob::encode(&job).and_then(|job| EnqueueRow::for_store(store, Cow::Owned(job), options, 0));
        let index = usize::try_from(first).unwrap_or(0) + rows.len();
        let row: EnqueueRow<'static> = row.map_err(|error| Error::OneOfMany { index, source: Box::new(error) })?;
        bytes += row.size();
        rows.push(row);
    }
    Ok(rows)
}

/// Enqueues a chunk in the transaction and returns the ids of the jobs. If `tx` is `None`, as in tests without a database, enqueues
/// nothing and returns placeholder ids.
async fn write(
    tx: Option<OwnedTransaction>,
    store: Store,
    options: Arc<EnqueueOptions>,
    rows: Vec<EnqueueRow<'static>>,
    first: i64,
) -> Result<(Option<OwnedTransaction>, Vec<JobId>), Failure> {
    let Some(mut tx) = tx else {
        return Ok((None, (0..rows.len() as i64).map(|n| JobId(2_000_000 + first + n)).collect()));
    };
    let on = Connection::One(connection(&mut tx));
    let written = bulk::write_all(on, store, None, from_ref(&*options), Box::new(rows.into_iter().map(Ok)), true).await?;
    let ids = written.ids.unwrap_or_default();
    if let Some(place) = written.outcomes.iter().position(|outcome| *outcome != EnqueueOutcome::New) {
        let held = ids.get(place).copied().unwrap_or(JobId(0));
        return Err(format!("job {held} holds the uniqueness key of a mapped job, which is therefore not spawned").into());
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
        Box::pin(self.run())
    }
}

impl<I> fmt::Debug for Map<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("name", &self.name.name).field("options", &self.options).finish_non_exhaustive()
    }
}

/// Jobs that a durable job has spawned in a map step. Returned by awaiting [`Durable::map`].
pub struct Parts<'c, J> {
    pub(crate) cx: &'c Durable,
    pub(crate) name: String,
    pub(crate) total: i64,
    job: PhantomData<fn() -> J>,
}

impl<J> Parts<'_, J> {
    /// Returns the number of jobs that were spawned.
    pub fn total(&self) -> u64 {
        self.total.unsigned_abs()
    }
}

impl<J> fmt::Debug for Parts<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("name", &self.name).field("total", &self.total).finish_non_exhaustive()
    }
}
