//! A job on its way: checked and encoded once, whichever statement takes it.

use std::borrow::Cow;

use serde::{Serialize, Serializer, ser::SerializeMap as _};

use super::{
    options::{EnqueueOptions, check_key},
    sealing::Sealing,
};
use crate::{
    define::JobType,
    error::Error,
    payload::{self, PayloadError},
    schema::Store,
    seal::Nonce,
};

/// What a job says of itself.
#[derive(Clone)]
pub(super) struct Encoded {
    /// JSON text.
    payload: String,
    key: Option<String>,
    fair: Option<String>,
    unique_key: Option<String>,
}

/// What an enqueue carries: a job, and what is said of it.
pub(super) struct Row<'a> {
    job: Cow<'a, Encoded>,
    /// All that is said of it; none if the job is plain.
    carried: Option<String>,
    /// Which of the options of its enqueue are its own.
    pub(super) options: usize,
}

impl Encoded {
    pub(super) fn of<J: JobType>(job: &J) -> Result<Self, Error> {
        let to_error = |source| Error::Payload { job_type: J::OPTIONS.name, source };
        let payload = payload::encode(job, payload::DEFAULT_LIMIT).map_err(to_error)?;
        let key = job.ordering_key().map(Cow::into_owned);
        key.as_deref().map_or(Ok(()), |key| check_key("the ordering key", key))?;
        let fair = job.fair_key().map(Cow::into_owned);
        fair.as_deref().map_or(Ok(()), |key| check_key("the fair key", key))?;
        // After the payload, which has the depth and the numbers of these fields checked.
        let unique_key = job.unique_key().into_text().transpose().map_err(|what| to_error(PayloadError::Encode(what)))?;
        let Some(sealing) = Sealing::of::<J>() else { return Ok(Self { payload, key, fair, unique_key }) };
        // The empty key is that of the whole queue, and says nothing.
        let hash_line = |key: String| if key.is_empty() { Ok(key) } else { sealing.hash("its ordering key", &key) };
        let key = key.map(hash_line).transpose()?;
        let unique_key = unique_key.map(|key| sealing.hash("its uniqueness key", &key)).transpose()?;
        Ok(Self { payload, key, fair, unique_key })
    }

    /// The payload as JSON text, in clear.
    pub(super) fn payload(&self) -> &str {
        &self.payload
    }
}

impl<'a> Row<'a> {
    /// As [`Row::new`], with a payload as it goes to this store.
    pub(super) fn to(store: Store, mut job: Cow<'a, Encoded>, options: &EnqueueOptions, place: usize) -> Result<Self, Error> {
        if let Some(sealing) = options.sealing() {
            let payload = sealing.seal(&job.payload, store, Nonce::Random)?;
            job.to_mut().payload = payload;
        }
        Self::new(job, options, place)
    }

    /// The job with these options, which are checked already and stand at this place among those of its enqueue.
    pub(super) fn new(job: Cow<'a, Encoded>, options: &EnqueueOptions, place: usize) -> Result<Self, Error> {
        let mut row = Self { job, carried: None, options: place };
        if row.unique_key(options).is_none() && options.unique.is_some() {
            return Err(Error::OutOfRange { what: "the uniqueness key", value: "none".to_owned(), range: "given with `unique(..)`" });
        }
        if !options.are_plain() || row.key(options).is_some() || row.fair_key(options).is_some() {
            row.carried = Some(row.carried(options)?.into_owned());
        }
        Ok(row)
    }

    pub(super) fn payload(&self) -> &str {
        &self.job.payload
    }

    /// Its ordering key: the one given, else its own.
    pub(super) fn key<'r>(&'r self, options: &'r EnqueueOptions) -> Option<&'r str> {
        options.key.as_deref().or(self.job.key.as_deref())
    }

    /// Its fair key: the one given, else its own.
    fn fair_key<'r>(&'r self, options: &'r EnqueueOptions) -> Option<&'r str> {
        options.fair.as_deref().or(self.job.fair.as_deref())
    }

    /// Its uniqueness key, if it is unique: the one given, else the one that its fields make.
    fn unique_key<'r>(&'r self, options: &'r EnqueueOptions) -> Option<&'r str> {
        options.unique.as_ref()?.key.as_deref().or(self.job.unique_key.as_deref())
    }

    /// Whether nothing is said of it for which there is no column in the statements of plain jobs.
    pub(super) fn is_plain(&self) -> bool {
        self.carried.is_none()
    }

    /// All that is said of it, as JSON text that `queue.enqueue` takes; none if that can be said in columns.
    pub(super) fn carried_if_any(&self) -> Option<&str> {
        self.carried.as_deref()
    }

    /// All that is said of it, plain or not.
    pub(super) fn carried(&self, options: &EnqueueOptions) -> Result<Cow<'_, str>, Error> {
        if let Some(carried) = &self.carried {
            return Ok(Cow::Borrowed(carried));
        }
        let to_error = |error: serde_json::Error| PayloadError::Encode(error.to_string());
        let text = serde_json::to_string(&Carried { row: self, options });
        text.map(Cow::Owned).map_err(|error| Error::Payload { job_type: options.job_type, source: to_error(error) })
    }

    /// How many bytes it adds to a statement, nearly.
    pub(super) fn size(&self) -> usize {
        self.job.payload.len() + self.carried.as_ref().map_or(0, String::len)
    }
}

struct Carried<'a> {
    row: &'a Row<'a>,
    options: &'a EnqueueOptions,
}

impl Serialize for Carried<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut to = serializer.serialize_map(None)?;
        self.options.write(&mut to)?;
        if let Some(key) = self.row.key(self.options) {
            to.serialize_entry("key", key)?;
            to.serialize_entry("key_policy", self.options.key_policy.name())?;
        }
        if let Some(fair) = self.row.fair_key(self.options) {
            to.serialize_entry("fair", fair)?;
        }
        if let Some(unique_key) = self.row.unique_key(self.options) {
            to.serialize_entry("unique_key", unique_key)?;
        }
        to.end()
    }
}
