//! References to jobs in one of several stores, with a text form for people and tools.

use std::{fmt, str::FromStr};

use crate::{define::JobId, error::Error, schema::check_name};

/// Reference to a job in one of several stores. The text form is the store name and the job id, such as `acme/1879032461361152001`.
///
/// ```
/// use queue_core::{JobId, stores::StoreJob};
///
/// let job: StoreJob = "acme/7".parse().unwrap();
/// assert_eq!((job.store(), job.id(), job.to_string()), ("acme", JobId(7), "acme/7".to_owned()));
/// assert!("7".parse::<StoreJob>().is_err() && "/7".parse::<StoreJob>().is_err() && "acme/x".parse::<StoreJob>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreJob {
    store: String,
    id: JobId,
}

impl StoreJob {
    /// Creates a reference to the job `id` in the store named `store`.
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] for an invalid store name.
    pub fn new(store: &str, id: JobId) -> Result<Self, Error> {
        check_name("name of a store", store)?;
        Ok(Self { store: store.to_owned(), id })
    }

    /// Returns the name of the store.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Returns the job's id in its store.
    pub fn id(&self) -> JobId {
        self.id
    }
}

impl fmt::Display for StoreJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.store, self.id)
    }
}

impl FromStr for StoreJob {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong =
            || Error::OutOfRange { what: "the job reference", value: text.chars().take(120).collect(), range: "of the form `store/123`" };
        let (store, id) = text.rsplit_once('/').ok_or_else(wrong)?;
        Self::new(store, id.parse().map_err(|_| wrong())?)
    }
}
