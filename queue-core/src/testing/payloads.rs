//! Whether this release can read what earlier ones have enqueued: the payload lock file, and what is said when it cannot.

use std::{env, fmt, fs, io::ErrorKind, path::Path};

use serde_json::Value;

use super::{
    lock::{self, Locked},
    unread::{unread, without},
};
use crate::{
    context::{PayloadForms, Registry},
    define::JobType,
};

/// The payload types of a program, to be compared with its lock file; see [`assert_payloads!`](crate::assert_payloads), which is this in short.
#[derive(Default)]
#[must_use = "nothing is compared until `check` is called"]
pub struct Payloads {
    forms: Vec<PayloadForms>,
    examples: Vec<Locked>,
    broken: Option<String>,
}

impl Payloads {
    /// Of all types that are linked into this binary with their handlers.
    pub fn linked() -> Self {
        match Registry::linked() {
            Ok(registry) => Self { forms: registry.types().map(|known| (known.forms)()).collect(), ..Self::default() },
            Err(error) => Self { broken: Some(error.to_string()), ..Self::default() },
        }
    }

    /// Of none yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// And of this one: for types whose handlers are elsewhere, and for tests of some types only.
    pub fn job_type<T: JobType>(mut self) -> Self {
        if self.forms.iter().all(|known| known.options.name != T::OPTIONS.name) {
            self.forms.push(PayloadForms::of::<T>());
        }
        self
    }

    /// And with this example, beside those that are made up: for a type of which none can be, because it says nothing of its fields before it is
    /// given them (`flatten`, `untagged`, an internal `tag`), or takes a text of a form of its own.
    ///
    /// # Panics
    /// When it cannot be written as JSON.
    pub fn example<T: JobType>(mut self, job: &T) -> Self {
        let payload = serde_json::to_value(job).unwrap_or_else(|error| panic!("the example of `{}` is no JSON: {error}", T::OPTIONS.name));
        self.examples.push(Locked { job_type: T::OPTIONS.name.to_owned(), version: T::OPTIONS.version, payload });
        self.job_type::<T>()
    }

    /// Compares them with this file; writes it if it is not there, or if the variable `QUEUE_PAYLOADS` is `accept` and all of it can be read.
    ///
    /// # Panics
    /// When a payload of the file cannot be read as it was meant, with what to do about it; when the file cannot be read or written.
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

    /// The text to be written, if it is to be: without a file, or with one that is accepted as it is now.
    ///
    /// # Errors
    /// What cannot be read any more.
    #[doc(hidden)]
    pub fn compare(&self, text: Option<&str>, accept: bool) -> Result<Option<String>, String> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let (mut faults, mut kept) = (Vec::new(), Vec::new());
        for locked in lock::parse(text.unwrap_or_default())? {
            match self.look(&locked) {
                Look::Fine => kept.push(locked),
                Look::Gone(_) if accept => {}
                Look::Gone(fields) => faults.push(gone(&locked, &fields)),
                Look::Fault(why, fix) => faults.push(format!("{locked}\n    {why}\n    {fix}")),
            }
        }
        for forms in &self.forms {
            match self.made(forms) {
                Ok(made) => kept.extend(made),
                Err(fault) => faults.push(fault),
            }
        }
        if !faults.is_empty() {
            faults.dedup();
            let all = faults.join("\n  ");
            return Err(format!("jobs may be waiting that this release cannot read:\n  {all}\n(docs/EVOLUTION.md says more of each)"));
        }
        let now = lock::write(&kept);
        Ok(if text.is_none() || (accept && text != Some(&now)) { Some(now) } else { None })
    }

    fn look(&self, locked: &Locked) -> Look {
        let Locked { job_type, version, payload } = locked;
        let is_it = |forms: &&PayloadForms| {
            let options = &forms.options;
            options.name == job_type || options.aliases.contains(&&**job_type)
        };
        let Some(forms) = self.forms.iter().find(is_it) else {
            let fix = format!(
                "if it has another name now, say `aliases = [\"{job_type}\"]`; if it is gone and no such job can be waiting, take the line away"
            );
            return Look::Fault(format!("there is no job type `{job_type}` any more"), fix);
        };
        let newest = forms.options.version;
        if *version > newest {
            let fix = format!("say `version = {version}` or a later one: versions only grow");
            return Look::Fault(format!("the version went back to {newest}"), fix);
        }
        match (forms.reread)(payload, *version) {
            Err(why) => {
                let fix = if *version == newest { fix(&why, newest) } else { format!("mend the upgrade from version {version}") };
                Look::Fault(why, fix)
            }
            Ok(_) if *version < newest => Look::Fine,
            Ok(_) => match unread(payload, &|payload| (forms.reread)(payload, newest).ok()) {
                fields if fields.is_empty() => Look::Fine,
                fields => Look::Gone(fields),
            },
        }
    }

    /// What this release enqueues of a type. What it writes and does not read itself says nothing.
    fn made(&self, forms: &PayloadForms) -> Result<Vec<Locked>, String> {
        let options = forms.options;
        let (job_type, version) = (options.name, options.version);
        let examples = || self.examples.iter().filter(|example| example.job_type == job_type).map(|example| example.payload.clone());
        let made = match (forms.samples)() {
            Ok(made) => made,
            Err(_) if examples().next().is_some() => Vec::new(),
            Err(why) => {
                return Err(format!(
                    "`{job_type}`: no payload of it can be made up ({why})\n    give examples: `Payloads::linked().example(&job).check(..)`"
                ));
            }
        };
        let refused = |payload: Value| (forms.reread)(&payload, version).err().map(|why| (payload, why));
        let unread_example = examples().find_map(refused);
        let none_is_read = || made.iter().map(|payload| refused(payload.clone())).collect::<Option<Vec<_>>>()?.into_iter().next();
        if let Some((payload, why)) = unread_example.or_else(none_is_read) {
            return Err(format!(
                "`{job_type}` writes {payload} and does not read it: {why}\n    say `#[serde(default)]` of the field, or name it alike both ways"
            ));
        }
        let reread = |payload: &Value| (forms.reread)(payload, version).ok();
        let read = made.into_iter().filter(|payload| reread(payload).is_some()).chain(examples());
        let lock =
            |payload: Value| Locked { job_type: job_type.to_owned(), version, payload: without(&payload, &unread(&payload, &reread)) };
        Ok(read.map(lock).collect())
    }
}

/// What became of a payload of the file.
enum Look {
    Fine,
    /// It is read, but for these fields.
    Gone(Vec<String>),
    /// It is not, and what to do about it.
    Fault(String, String),
}

fn gone(locked: &Locked, fields: &[String]) -> String {
    let names: Vec<String> = fields.iter().map(|field| format!("`${}`", field.replace('/', "."))).collect();
    format!(
        "{locked}\n    {} is not read any more\n    if it has another name now, say `#[serde(alias = \"..\")]` of that; if it is meant to be lost, accept it: \
         QUEUE_PAYLOADS=accept",
        names.join(", ")
    )
}

fn fix(why: &str, version: u16) -> String {
    let another = format!("say `version = {}`, and how this one is read: `upgrade = ..`", version + 1);
    if why.starts_with("missing field") {
        format!("if the field is new, say `#[serde(default)]` of it; if it was renamed, `#[serde(alias = \"..\")]`; else {another}")
    } else if why.starts_with("unknown field") {
        format!("say `#[serde(alias = \"..\")]` of the field that took its place, or leave out `deny_unknown_fields`; else {another}")
    } else if why.starts_with("unknown variant") {
        format!("keep the variant, or say `#[serde(alias = \"..\")]` of the one that took its place; else {another}")
    } else {
        another
    }
}

impl fmt::Debug for Payloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payloads").field("job_types", &self.forms.len()).finish_non_exhaustive()
    }
}

/// Asserts that this release reads what earlier ones have enqueued: `assert_payloads!("jobs.lock")`, in a test of the crate that names all job
/// types. With types behind the path, of these only: `assert_payloads!("jobs.lock", SendEmail, Report)`.
///
/// The file, whose path is from the crate's root, belongs into the repository. It is written when it is not there. See
/// [the test kit](crate::testing) for what is noticed.
#[macro_export]
macro_rules! assert_payloads {
    ($path:expr $(,)?) => {
        $crate::testing::Payloads::linked().check(::std::path::Path::new(::std::env!("CARGO_MANIFEST_DIR")).join($path))
    };
    ($path:expr, $($job:ty),+ $(,)?) => {
        $crate::testing::Payloads::new()$(.job_type::<$job>())+.check(::std::path::Path::new(::std::env!("CARGO_MANIFEST_DIR")).join($path))
    };
}
