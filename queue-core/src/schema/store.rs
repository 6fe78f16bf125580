//! Store: one schema with the tables of this project in one database. This module only handles the schema name and rewrites statements for
//! the schema.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{Hash, Hasher},
    sync::{Mutex, PoisonError, RwLock},
};

use super::citus::NodeNames;
use crate::{error::Error, schema::qualify::qualify};

/// Store, identified by the name of the schema that holds the jobs. Defaults to `queue`. A process may use several stores.
///
/// ```no_run
/// # use queue_core::{Job, Queue, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, operate::Filter};
///
/// let store = Store::new("mail_jobs")?;
/// Email { to: "ada@example.org".into() }.enqueue(pool).store(store).await?;
/// let page = Queue::new(pool).store(store).jobs().list().await?;
/// println!("{} jobs in {}", page.jobs.len(), store.schema());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct Store {
    schema: &'static str,
    /// Names for rewriting statements that are sent directly to the node of a distributed store. `None` for statements that work on any
    /// node.
    home: Option<&'static NodeNames>,
}

/// Cache key of a statement: address of the schema name, address and length of the text, and address of the node names. Comparing
/// addresses is cheaper than hashing the text.
type StatementKey = (usize, usize, usize, usize);

static STATEMENTS: RwLock<BTreeMap<StatementKey, &'static str>> = RwLock::new(BTreeMap::new());

/// Schema-qualified statements by the address and length of their text. All stores share this map, so each statement is parsed once.
static QUALIFIED: Mutex<BTreeMap<(usize, usize), &'static str>> = Mutex::new(BTreeMap::new());

/// Schema name used in the SQL files.
const DEFAULT_SCHEMA: &str = "queue";

/// Maximum length of a schema name in bytes. PostgreSQL silently truncates names to 63 bytes. The remaining 15 bytes are for suffixes.
const MAX_SCHEMA_LEN: usize = 48;

impl Store {
    /// Returns the store in `schema`.
    ///
    /// The name is kept for the lifetime of the process, so use a small number of schemas instead of a new schema for each request.
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] unless the name has 1 to 48 of the characters `A-Z a-z 0-9 _ . : -`. Returns [`Error::OutOfRange`]
    /// for a schema that belongs to PostgreSQL itself.
    pub fn new(schema: &str) -> Result<Self, Error> {
        check("schema name", schema, MAX_SCHEMA_LEN)?;
        if schema.starts_with("pg_") || schema == "information_schema" {
            let range = "none of PostgreSQL's own, which begin with `pg_` or are `information_schema`; use another name, such as `queue`";
            return Err(Error::OutOfRange { what: "the schema", value: format!("`{schema}`"), range });
        }
        if schema == DEFAULT_SCHEMA {
            return Ok(Self::default());
        }
        Ok(Self { schema: intern(schema.to_owned()), home: None })
    }

    /// Returns the same store, with statements rewritten for the node that holds the store.
    pub(super) fn at(self, home: &'static NodeNames) -> Self {
        Self { home: Some(home), ..self }
    }

    /// Returns the same store, with statements that work on any node.
    #[doc(hidden)]
    #[must_use]
    pub fn anywhere(self) -> Self {
        Self { home: None, ..self }
    }

    /// Returns the name of the schema.
    pub fn schema(self) -> &'static str {
        self.schema
    }

    /// Returns a statement rewritten for this store's schema. Operators, functions and types are schema-qualified too, so the statement has
    /// the same meaning under any `search_path`. The result is cached for the lifetime of the process.
    pub fn sql(self, statement: &'static str) -> &'static str {
        let home = self.home.map_or(0, |home| std::ptr::from_ref(home).addr());
        let place = (self.schema.as_ptr().addr(), statement.as_ptr().addr(), statement.len(), home);
        if let Some(known) = STATEMENTS.read().unwrap_or_else(PoisonError::into_inner).get(&place) {
            return known;
        }
        #[cfg(queue_mutants)]
        let statement = crate::mutants::replacement(statement);
        let qualified = qualified(statement);
        let written = match self.home {
            Some(home) => self.rewrite_text(&home.statement(qualified)),
            None => self.rewrite_text(qualified),
        };
        let written = intern(written);
        STATEMENTS.write().unwrap_or_else(PoisonError::into_inner).insert(place, written);
        written
    }

    /// Replaces the schema name in text, such as a migration or an object name. Unlike [`sql`](Self::sql), leaves operators, functions
    /// and types unqualified.
    pub(crate) fn text(self, text: &'static str) -> &'static str {
        #[cfg(queue_mutants)]
        let text = crate::mutants::replacement(text);
        if self.schema == DEFAULT_SCHEMA { text } else { intern(self.rewrite_text(text)) }
    }

    /// Replaces the schema name like [`Store::text`], in text built at run time.
    pub(super) fn rewrite_text(self, text: &str) -> String {
        if self.schema == DEFAULT_SCHEMA { text.to_owned() } else { rewrite(text, self.schema) }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self { schema: DEFAULT_SCHEMA, home: None }
    }
}

/// Compares only the schemas. Two values with the same schema are the same store, even if their statements are sent to different nodes.
impl PartialEq for Store {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema
    }
}

impl Eq for Store {}

impl Hash for Store {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.schema.hash(state);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store {{ schema: {:?} }}", self.schema)
    }
}

/// Checks that a name, such as the name of a queue or a job type, is valid.
///
/// # Errors
/// Returns [`Error::InvalidName`] unless the name has 1 to 64 of the characters `A-Z a-z 0-9 _ . : -`.
pub fn check_name(what: &'static str, name: &str) -> Result<(), Error> {
    check(what, name, 64)
}

fn check(what: &'static str, name: &str, most: usize) -> Result<(), Error> {
    let fits = (1..=most).contains(&name.len());
    if fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte)) {
        return Ok(());
    }
    let cut = if name.chars().nth(most).is_some() { ".." } else { "" };
    let value = format!("{}{cut}", name.chars().take(most).flat_map(char::escape_default).collect::<String>());
    Err(Error::InvalidName { what, value, most })
}

/// Replaces the prefix `queue.` with the quoted schema name, unless the prefix ends a longer word or follows a dot.
fn rewrite(statement: &str, schema: &str) -> String {
    let mut out = String::with_capacity(statement.len() + 256);
    let mut rest = statement;
    while let Some(at) = rest.find("queue.") {
        let before = rest[..at].chars().next_back().or(out.chars().next_back());
        out.push_str(&rest[..at]);
        if before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
            out.push_str("queue.");
        } else {
            out.push('"');
            out.push_str(schema);
            out.push_str("\".");
        }
        rest = &rest[at + "queue.".len()..];
    }
    out.push_str(rest);
    out
}

/// Returns the statement with schema-qualified operators, functions and types, from the cache if possible.
fn qualified(statement: &'static str) -> &'static str {
    let mut known = QUALIFIED.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry((statement.as_ptr().addr(), statement.len())).or_insert_with(|| intern(qualify(statement)))
}

/// Returns the text with a `'static` lifetime. The text is never freed, and equal texts share one copy.
fn intern(text: String) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(text.as_str()) {
        return known;
    }
    let leaked: &'static str = Box::leak(text.into_boxed_str());
    kept.insert(leaked);
    leaked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_schema_is_rewritten() {
        let text = "select queue.enqueue(enqueue.queue, l.queue) from queue.lane l -- 'queue.wake'";
        let want = "select \"a.b\".enqueue(enqueue.queue, l.queue) from \"a.b\".lane l -- '\"a.b\".wake'";
        assert_eq!(rewrite(text, "a.b"), want);
    }

    #[test]
    fn f19_names_outside_the_grammar_are_refused() {
        let long = "x".repeat(65);
        for name in ["", "'; DROP TABLE jobs", "a\"b", "100%", "a\nb", "😀", long.as_str()] {
            assert!(matches!(check_name("queue", name), Err(Error::InvalidName { .. })), "{name:?}");
        }
        assert!(check_name("queue", "Mail.v2:eu_west-1").is_ok());
    }

    #[test]
    fn f20_a_schema_has_at_most_48_characters() {
        assert!(Store::new(&"s".repeat(48)).is_ok());
        assert!(Store::new(&"s".repeat(49)).is_err());
    }
}
