//! Jobs of several types, collected and then enqueued together.

use std::{borrow::Cow, fmt, future::Future};

use super::{
    bulk::{Row, write_all},
    encode,
    terms::{Terms, terms_methods},
    unique_key_of,
};
use crate::{
    connect::IntoConnection,
    define::{Durability, JobId, JobType},
    error::Error,
    schema::Store,
};

/// Jobs of any types, to be enqueued together and in the order in which they were added.
///
/// Payloads are checked when they are added. Enqueuing the batch leaves it as it is, so that a transaction can be tried again.
///
/// ```no_run
/// # use std::time::Duration;
/// # use queue_core::{Batch, Priority, job};
/// # use serde::{Serialize, Deserialize};
/// # #[job(send_only)] #[derive(Serialize, Deserialize)] struct SendEmail { to: String }
/// # #[job(send_only)] #[derive(Serialize, Deserialize)] struct Report { month: u8 }
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut batch = Batch::new();
/// batch.add(SendEmail { to: "ada@example.org".into() })?;
/// batch.add(Report { month: 11 })?.priority(Priority::BACKFILL).after(Duration::from_secs(3600));
///
/// let mut tx = pool.begin().await?;
/// let ids = batch.enqueue(&mut tx).await?;
/// tx.commit().await?;
/// println!("the report is job {}", ids[1]);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Batch {
    store: Store,
    durability: Option<Durability>,
    terms: Vec<Terms>,
    payloads: Vec<String>,
    /// Each job's own ordering key, and its uniqueness key.
    keys: Vec<(Option<String>, Option<String>)>,
}

impl Batch {
    /// An empty batch for the default store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For this store instead of the default one.
    #[must_use]
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// Whether the commit of these jobs waits for the disk; see [`Durability`] for what is risked. Default: it does if one of their types says so.
    ///
    /// In a transaction of yours it changes nothing, as with [`EnqueueAll::durability`](super::EnqueueAll::durability).
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Adds a job. What differs from its type's options can be said of what this returns.
    ///
    /// # Errors
    /// [`Error::Payload`]: the payload cannot be stored exactly. [`Error::OutOfRange`]: its ordering key has NUL. The batch is as before.
    #[allow(clippy::needless_pass_by_value, reason = "a job is given away, here as everywhere")]
    pub fn add<J: JobType>(&mut self, job: J) -> Result<Added<'_>, Error> {
        let (payload, terms) = (encode(&job)?, Terms::of::<J>());
        self.keys.push((terms.key_of(&job)?, unique_key_of(&job, &terms)?));
        self.payloads.push(payload);
        self.terms.push(terms);
        let at = self.terms.len() - 1;
        Ok(Added { terms: &mut self.terms[at] })
    }

    /// How many jobs it has.
    pub fn len(&self) -> usize {
        self.payloads.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }

    /// Enqueues all jobs of the batch; returns their ids in the order in which they were added. For a job whose type is unique and whose key is
    /// held, that is the id of the job that holds it. On which connection, and what follows from
    /// it, is as with [`EnqueueAll`](super::EnqueueAll).
    ///
    /// # Errors
    /// An option is out of range ([`Error::OneOfMany`] says whose), the schema is missing, or the database failed.
    pub fn enqueue<'c>(&'c self, on: impl IntoConnection<'c>) -> impl Future<Output = Result<Vec<JobId>, Error>> + Send {
        let on = on.into_connection();
        async move {
            for (index, terms) in self.terms.iter().enumerate() {
                terms.check().map_err(|error| Error::OneOfMany { index, source: Box::new(error) })?;
            }
            let keys = self.terms.iter().zip(&self.keys).map(|(terms, (own, unique_key))| {
                let key = terms.key.as_ref().or(own.as_ref()).map(|key| Cow::Borrowed(&**key));
                (key, unique_key.clone())
            });
            let rows = self.payloads.iter().zip(keys).enumerate();
            let rows =
                rows.map(|(terms, (payload, (key, unique_key)))| Ok(Row { payload: Cow::Borrowed(payload), key, unique_key, terms }));
            let all_relaxed = self.terms.iter().all(|terms| terms.durability == Durability::Relaxed);
            let durability = self.durability.unwrap_or(if all_relaxed { Durability::Relaxed } else { Durability::Full });
            let written = write_all(on, self.store, durability, &self.terms, Box::new(rows), true).await?;
            Ok(written.ids.unwrap_or_default())
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("jobs", &self.len()).finish_non_exhaustive()
    }
}

/// A job in a [`Batch`], of which more can be said.
///
/// ```
/// # use queue_core::{Batch, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Tick;
/// # fn example() -> Result<(), queue_core::Error> {
/// let mut batch = Batch::new();
/// batch.add(Tick)?.queue("clock").max_attempts(1);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Added<'b> {
    terms: &'b mut Terms,
}

#[allow(clippy::return_self_not_must_use, reason = "what is said takes effect at once")]
impl Added<'_> {
    terms_methods!(self);
}
