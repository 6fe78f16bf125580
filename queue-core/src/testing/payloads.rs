//! Checks that this release can read payloads that earlier releases have enqueued. Compares the payload types with the payload lock file,
//! and builds the error messages for payloads that cannot be read.

use std::{env, fmt, fs, io::ErrorKind, path::Path};

use serde_json::Value;

use super::{
    lock::{self, LockedPayload},
    unread::{unread, without},
};
use crate::{
    context::{PayloadForms, Registry},
    define::JobType,
};

/// Payload types of a program, to be compared with the payload lock file. [`assert_payloads!`](crate::assert_payloads) is a shorthand for
/// a comparison without examples.
///
/// ```no_run
/// # use queue_core::job;
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// use queue_core::testing::Payloads;
///
/// let example = Email { to: "ada@example.org".into() };
/// Payloads::new().job_type::<Email>().example(&example).check("jobs.lock");
/// ```
#[derive(Default)]
#[must_use = "nothing is compared until `check` is called"]
pub struct Payloads {
    forms: Vec<PayloadForms>,
    examples: Vec<LockedPayload>,
    broken: Option<String>,
}

impl Payloads {
    /// Returns the payload types of all handlers linked into this binary.
    pub fn linked() -> Self {
        match Registry::linked() {
            Ok(registry) => Self { forms: registry.types().map(|known| (known.forms)()).collect(), ..Self::default() },
            Err(error) => Self { broken: Some(error.to_string()), ..Self::default() },
        }
    }

    /// Returns an empty set of payload types.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the job type `T`. This call is needed for types whose handlers are not linked into this binary, and for tests of selected
    /// types.
    pub fn job_type<T: JobType>(mut self) -> Self {
        if self.forms.iter().all(|known| known.options.name != T::OPTIONS.name) {
            self.forms.push(PayloadForms::of::<T>());
        }
        self
    }

    /// Adds an example payload of the job type `T` to the generated payloads.
    ///
    /// An example is required for a type whose payloads cannot be generated. This applies to a type with the serde attribute `flatten`,
    /// `untagged` or an internal `tag`, because such a type does not declare its fields to serde in advance. It also applies to a type
    /// that parses strings in a custom format.
    ///
    /// # Panics
    /// Panics if the example cannot be written as JSON.
    pub fn example<T: JobType>(mut self, job: &T) -> Self {
        let payload = serde_json::to_value(job.as_serde())
            .unwrap_or_else(|error| panic!("the example of `{}` cannot be written as JSON: {error}", T::OPTIONS.name));
        self.examples.push(LockedPayload { job_type: T::OPTIONS.name.to_owned(), version: T::OPTIONS.version, payload });
        self.job_type::<T>()
    }

    /// Compares the payload types with the lock file. Writes the file if it does not exist, or if the environment variable `QUEUE_PAYLOADS`
    /// is `accept` and every payload can be read.
    ///
    /// # Panics
    /// Panics if a payload in the file cannot be read, or if some of its fields are ignored and `QUEUE_PAYLOADS` is not `accept`. The
    /// message contains instructions. Also panics if the file itself cannot be read or written.
    pub fn check(&self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        let text = match fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => panic!("cannot read {}: {error}", path.display()),
        };
        let accept = env::var("QUEUE_PAYLOADS").is_ok_and(|word| word == "accept");
        match self.compare(text.as_deref(), accept) {
            Ok(Some(text)) => fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display())),
            Ok(None) => {}
            Err(faults) => panic!("{}: {faults}", path.display()),
        }
    }

    /// Returns the text to write to the lock file, or `None` if the file is not to be written. An existing file is written only if its
    /// text changes and `accept` is true.
    ///
    /// # Errors
    /// Returns a description of the payloads that this release cannot read completely, or of an invalid registry or lock file.
    #[doc(hidden)]
    pub fn compare(&self, text: Option<&str>, accept: bool) -> Result<Option<String>, String> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let (mut faults, mut kept) = (Vec::new(), Vec::new());
        for locked in lock::parse(text.unwrap_or_default())? {
            match self.check_locked(&locked) {
                LockCheck::Fine => kept.push(locked),
                LockCheck::Unread(_) if accept => {}
                LockCheck::Unread(fields) => faults.push(unread_message(&locked, &fields)),
                LockCheck::Fault(why, fix) => faults.push(format!("{locked}\n    {why}\n    {fix}")),
            }
        }
        for forms in &self.forms {
            match self.generate(forms) {
                Ok(made) => kept.extend(made),
                Err(fault) => faults.push(fault),
            }
        }
        if !faults.is_empty() {
            faults.dedup();
            let all = faults.join("\n  ");
            return Err(format!(
                "this release cannot read payloads of jobs that may be waiting:\n  {all}\n(see docs/EVOLUTION.md for each)"
            ));
        }
        let now = lock::write(&kept);
        Ok(if text.is_none() || (accept && text != Some(&now)) { Some(now) } else { None })
    }

    fn check_locked(&self, locked: &LockedPayload) -> LockCheck {
        let LockedPayload { job_type, version, payload } = locked;
        let is_it = |forms: &&PayloadForms| {
            let options = &forms.options;
            options.name == job_type || options.aliases.contains(&&**job_type)
        };
        let Some(forms) = self.forms.iter().find(is_it) else {
            let fix = format!(
                "if it was renamed, add `aliases = [\"{job_type}\"]`; if it was removed and no such job can be waiting, remove the line"
            );
            return LockCheck::Fault(format!("there is no job type `{job_type}` any more"), fix);
        };
        let newest = forms.options.version;
        if *version > newest {
            let fix = format!("set `version = {version}` or a later one: versions only grow");
            return LockCheck::Fault(format!("the version went back to {newest}"), fix);
        }
        match (forms.reread)(payload, *version) {
            Err(why) => {
                let fix = if *version == newest { fix(&why, newest) } else { format!("fix the upgrade from version {version}") };
                LockCheck::Fault(why, fix)
            }
            Ok(_) if *version < newest => LockCheck::Fine,
            Ok(_) => match unread(payload, &|payload| (forms.reread)(payload, newest).ok()) {
                fields if fields.is_empty() => LockCheck::Fine,
                fields => LockCheck::Unread(fields),
            },
        }
    }

    /// Returns a job type's generated payloads that this release can read, and the type's [examples](Payloads::example). Fails if none of
    /// the generated payloads can be read, or if one of the examples cannot be read. Also fails if no payload can be generated and there
    /// is no example.
    fn generate(&self, forms: &PayloadForms) -> Result<Vec<LockedPayload>, String> {
        let options = forms.options;
        let (job_type, version) = (options.name, options.version);
        let examples = || self.examples.iter().filter(|example| example.job_type == job_type).map(|example| example.payload.clone());
        let made = match (forms.samples)() {
            Ok(made) => made,
            Err(_) if examples().next().is_some() => Vec::new(),
            Err(why) => {
                return Err(format!(
                    "`{job_type}`: no example payload can be generated ({why})\n    add an example: `Payloads::linked().example(&job).check(..)`"
                ));
            }
        };
        let refused = |payload: Value| (forms.reread)(&payload, version).err().map(|why| (payload, why));
        let unread_example = examples().find_map(refused);
        let none_is_read = || made.iter().map(|payload| refused(payload.clone())).collect::<Option<Vec<_>>>()?.into_iter().next();
        if let Some((payload, why)) = unread_example.or_else(none_is_read) {
            return Err(format!(
                "`{job_type}` writes {payload} and cannot read it: {why}\n    add `#[serde(default)]` to the field, or use one name for reading and writing"
            ));
        }
        let reread = |payload: &Value| (forms.reread)(payload, version).ok();
        let read = made.into_iter().filter(|payload| reread(payload).is_some()).chain(examples());
        let lock = |payload: Value| LockedPayload {
            job_type: job_type.to_owned(),
            version,
            payload: without(&payload, &unread(&payload, &reread)),
        };
        Ok(read.map(lock).collect())
    }
}

/// Result of reading one payload of the lock file.
enum LockCheck {
    Fine,
    /// The payload can be read, but the listed fields are ignored.
    Unread(Vec<String>),
    /// The payload cannot be read. Contains the reason and a suggested fix.
    Fault(String, String),
}

fn unread_message(locked: &LockedPayload, fields: &[String]) -> String {
    let names: Vec<String> = fields.iter().map(|field| format!("`${}`", field.replace('/', "."))).collect();
    format!(
        "{locked}\n    {} is not read any more\n    if it was renamed, add `#[serde(alias = \"..\")]` to the new field; if the data may be lost, accept it: \
         QUEUE_PAYLOADS=accept",
        names.join(", ")
    )
}

fn fix(why: &str, version: u16) -> String {
    let another = format!("set `version = {}`, with an upgrade from this version: `upgrade = ..`", version + 1);
    if why.starts_with("missing field") {
        format!("if the field is new, add `#[serde(default)]`; if it was renamed, `#[serde(alias = \"..\")]`; otherwise {another}")
    } else if why.starts_with("unknown field") {
        format!("add `#[serde(alias = \"..\")]` to the field that replaces it, or remove `deny_unknown_fields`; otherwise {another}")
    } else if why.starts_with("unknown variant") {
        format!("keep the variant, or add `#[serde(alias = \"..\")]` to the one that replaces it; otherwise {another}")
    } else {
        another
    }
}

impl fmt::Debug for Payloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payloads").field("job_types", &self.forms.len()).finish_non_exhaustive()
    }
}

/// Asserts that this release can read payloads that earlier releases have enqueued: `assert_payloads!("jobs.lock")`. Use the macro in a
/// test of the crate that contains all job types. To check only some types, list them after the path: `assert_payloads!("jobs.lock",
/// SendEmail, Report)`.
///
/// The path is relative to the crate's root. The file is created if it does not exist. Commit the file to the repository. See [the test
/// kit](crate::testing) for the changes that are detected.
#[macro_export]
macro_rules! assert_payloads {
    ($path:expr $(,)?) => {
        $crate::testing::Payloads::linked().check(::std::path::Path::new(::std::env!("CARGO_MANIFEST_DIR")).join($path))
    };
    ($path:expr, $($job:ty),+ $(,)?) => {
        $crate::testing::Payloads::new()$(.job_type::<$job>())+.check(::std::path::Path::new(::std::env!("CARGO_MANIFEST_DIR")).join($path))
    };
}
