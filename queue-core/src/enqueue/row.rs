//! Rows of an enqueue. The job of each row is checked and encoded once, in a form that all enqueue statements accept.

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

/// Encoded payload of a job, and the keys derived from the payload.
#[derive(Clone)]
pub(super) struct EncodedJob {
    /// Payload as JSON text. [`EnqueueRow::for_store`] seals the payload if the type requires it.
    payload: String,
    key: Option<String>,
    fair: Option<String>,
    unique_key: Option<String>,
}

/// One job of an enqueue: the encoded payload, and a reference to its options.
pub(super) struct EnqueueRow<'a> {
    job: Cow<'a, EncodedJob>,
    /// All options as JSON text; `None` for a plain job, see [`EnqueueRow::is_plain`].
    options_json: Option<String>,
    /// Index of the job's options among the options of the enqueue.
    pub(super) options: usize,
}

impl EncodedJob {
    pub(super) fn encode<J: JobType>(job: &J) -> Result<Self, Error> {
        let to_error = |source| Error::Payload { job_type: J::OPTIONS.name, source };
        let payload = payload::encode(job.as_serde(), payload::DEFAULT_LIMIT).map_err(to_error)?;
        let key = job.ordering_key().map(Cow::into_owned);
        key.as_deref().map_or(Ok(()), |key| check_key("the ordering key", key))?;
        let fair = job.fair_key().map(Cow::into_owned);
        fair.as_deref().map_or(Ok(()), |key| check_key("the fair key", key))?;
        // The uniqueness key is computed after the payload is encoded. The encoding has then already checked the numbers and the nesting
        // depth of the key's fields.
        let unique_key = job.unique_key().into_text().transpose().map_err(|what| to_error(PayloadError::Encode(what)))?;
        let Some(sealing) = Sealing::for_type::<J>() else { return Ok(Self { payload, key, fair, unique_key }) };
        // The empty key orders the whole queue and reveals nothing, so it is not hashed.
        let hash_line = |key: String| if key.is_empty() { Ok(key) } else { sealing.hash("its ordering key", &key) };
        let key = key.map(hash_line).transpose()?;
        let unique_key = unique_key.map(|key| sealing.hash("its uniqueness key", &key)).transpose()?;
        Ok(Self { payload, key, fair, unique_key })
    }

    /// Returns the unsealed payload as JSON text.
    pub(super) fn payload(&self) -> &str {
        &self.payload
    }
}

impl<'a> EnqueueRow<'a> {
    /// Creates a row like [`EnqueueRow::new`] and seals the payload for `store` if the type requires it.
    pub(super) fn for_store(store: Store, mut job: Cow<'a, EncodedJob>, options: &EnqueueOptions, place: usize) -> Result<Self, Error> {
        if let Some(sealing) = options.sealing() {
            let payload = sealing.seal(&job.payload, store, Nonce::Random)?;
            job.to_mut().payload = payload;
        }
        Self::new(job, options, place)
    }

    /// Creates the row for a job. The caller must have checked the options. `place` is the index of `options` among the options of the
    /// enqueue.
    pub(super) fn new(job: Cow<'a, EncodedJob>, options: &EnqueueOptions, place: usize) -> Result<Self, Error> {
        let mut row = Self { job, options_json: None, options: place };
        if row.unique_key(options).is_none() && options.unique.is_some() {
            return Err(Error::OutOfRange { what: "the uniqueness key", value: "none".to_owned(), range: "given with `unique(..)`" });
        }
        if !options.is_plain() || row.key(options).is_some() || row.fair_key(options).is_some() {
            row.options_json = Some(row.options_json(options)?.into_owned());
        }
        Ok(row)
    }

    pub(super) fn payload(&self) -> &str {
        &self.job.payload
    }

    /// Returns the ordering key from the options, or else the payload's ordering key.
    pub(super) fn key<'r>(&'r self, options: &'r EnqueueOptions) -> Option<&'r str> {
        options.key.as_deref().or(self.job.key.as_deref())
    }

    /// Returns the fairness key from the options, or else the payload's fairness key.
    fn fair_key<'r>(&'r self, options: &'r EnqueueOptions) -> Option<&'r str> {
        options.fair.as_deref().or(self.job.fair.as_deref())
    }

    /// Returns the uniqueness key from the options, or else the key derived from the job's fields. Returns `None` if the job is not unique
    /// or has neither key.
    fn unique_key<'r>(&'r self, options: &'r EnqueueOptions) -> Option<&'r str> {
        options.unique.as_ref()?.key.as_deref().or(self.job.unique_key.as_deref())
    }

    /// Returns whether the job is plain: it has no keys, metadata, system attributes or expiry. The statements for plain jobs can write
    /// only such jobs.
    pub(super) fn is_plain(&self) -> bool {
        self.options_json.is_none()
    }

    /// Returns the options as JSON text for `queue.enqueue`, or `None` if the job is plain.
    pub(super) fn extra_options_json(&self) -> Option<&str> {
        self.options_json.as_deref()
    }

    /// Returns the options as JSON text, even for a plain job.
    pub(super) fn options_json(&self, options: &EnqueueOptions) -> Result<Cow<'_, str>, Error> {
        if let Some(options_json) = &self.options_json {
            return Ok(Cow::Borrowed(options_json));
        }
        let to_error = |error: serde_json::Error| PayloadError::Encode(error.to_string());
        let text = serde_json::to_string(&OptionsJson { row: self, options });
        text.map(Cow::Owned).map_err(|error| Error::Payload { job_type: options.job_type, source: to_error(error) })
    }

    /// Returns the approximate number of bytes that the row adds to a statement.
    pub(super) fn size(&self) -> usize {
        self.job.payload.len() + self.options_json.as_ref().map_or(0, String::len)
    }
}

struct OptionsJson<'a> {
    row: &'a EnqueueRow<'a>,
    options: &'a EnqueueOptions,
}

impl Serialize for OptionsJson<'_> {
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
