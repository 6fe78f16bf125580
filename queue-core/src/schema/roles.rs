//! Group roles of a store and their privileges, as SQL. The SQL files list the functions that each role may execute.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{
    session::Session,
    store::{Store, check_name},
};
use crate::error::Error;

/// Group roles for a store: `producer`, `worker`, `reader`, `operator` and `owner`. The roles are named after the store's schema, such as
/// `queue_producer`, and cannot log in. Users get privileges by membership: `grant queue_producer to web`.
///
/// Apply the roles again after each migration. Applying the roles resets their privileges to exactly the privileges of this release. The
/// login that applies the roles must be a superuser, or must have the `CREATEROLE` attribute and own the store.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Roles, Store};
///
/// let store = Store::default();
/// Roles::of(store).apply(&mut *pool.acquire().await?).await?;
/// Roles::of_producer(store, "mailer", &["mail", "newsletter"])?.apply(&mut *pool.acquire().await?).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Roles {
    store: Store,
    prefix: String,
    /// Name of a producer role and the queues into which the role may enqueue. `None` for the store's five group roles.
    producer: Option<(String, Vec<String>)>,
}

/// Names of the group roles other than `owner`, each with the SQL files that grant the role's privileges. A role may be a member of a
/// role earlier in the list, so the order matters.
const ROLES: [(&str, &[&str]); 4] = [
    ("producer", &[include_str!("../../roles/producer.sql"), include_str!("../../roles/every_queue.sql")]),
    ("worker", &[include_str!("../../roles/worker.sql")]),
    ("reader", &[include_str!("../../roles/reader.sql")]),
    ("operator", &[include_str!("../../roles/operator.sql")]),
];

/// Maximum length of a role name in bytes. PostgreSQL silently truncates longer names.
const MAX_NAME_LEN: usize = 63;

impl Roles {
    /// Returns the five group roles of `store`.
    pub fn of(store: Store) -> Self {
        Self { store, prefix: store.schema().to_owned(), producer: None }
    }

    /// Returns a producer role that may enqueue only into `queues`. [`apply`](Self::apply) creates the role if it does not exist, and
    /// replaces the queues of an existing role.
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] for an invalid role or queue name. Returns [`Error::OutOfRange`] if `queues` is empty, or if `role`
    /// is one of the store's five group roles.
    pub fn of_producer(store: Store, role: &str, queues: &[&str]) -> Result<Self, Error> {
        check_role(role)?;
        let of_store = Self::of(store).names();
        if of_store.iter().any(|name| name == role) {
            return Err(Error::OutOfRange {
                what: "the role of a producer",
                value: role.to_owned(),
                range: "none of the store's five roles",
            });
        }
        if queues.is_empty() {
            return Err(Error::OutOfRange { what: "the number of queues of a producer", value: "0".to_owned(), range: "at least 1" });
        }
        queues.iter().try_for_each(|queue| check_name("queue", queue))?;
        Ok(Self { producer: Some((role.to_owned(), queues.iter().map(|&queue| queue.to_owned()).collect())), ..Self::of(store) })
    }

    /// Sets the name prefix of the five group roles. Defaults to the schema name.
    ///
    /// A prefix is needed if another database on the same server has a schema of the same name, because roles belong to the whole server.
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] if a role name with the prefix is invalid.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, Error> {
        ROLES.iter().try_for_each(|(role, _)| check_role(&format!("{prefix}_{role}")))?;
        prefix.clone_into(&mut self.prefix);
        Ok(self)
    }

    /// Returns the names of the roles.
    pub fn names(&self) -> Vec<String> {
        match &self.producer {
            Some((role, _)) => vec![role.clone()],
            None => ["owner"].into_iter().chain(ROLES.map(|(role, _)| role)).map(|role| self.name(role)).collect(),
        }
    }

    /// Returns a pair of a role and a function for each execute privilege that the SQL files grant. Privileges that a role inherits from
    /// another role are not included.
    pub(crate) fn executable_functions(&self) -> Vec<(String, String)> {
        let granted = ROLES.iter().flat_map(|(role, texts)| texts.iter().map(|text| (self.name(role), text)));
        granted
            .flat_map(|(role, text)| granted_functions(text).map(move |function| (role.clone(), function.to_owned())).collect::<Vec<_>>())
            .collect()
    }

    /// Returns the SQL as one transaction, for users who apply it with other tools.
    pub fn print(&self) -> String {
        format!("begin;\nset local search_path = pg_catalog, pg_temp;\n\n{}\ncommit;\n", self.sql())
    }

    /// Creates the roles, or updates their privileges. If the caller has an open transaction, all changes are part of this transaction.
    ///
    /// # Errors
    /// Returns an error if a statement fails. In this case, nothing is changed.
    pub async fn apply(&self, connection: &mut PgConnection) -> Result<(), Error> {
        let mut session = Session::on(connection).await?;
        let done = async {
            let path: String =
                sqlx::query_scalar("select pg_catalog.current_setting('search_path')").fetch_one(session.connection()).await?;
            sqlx::raw_sql("set local search_path = pg_catalog, pg_temp").execute(session.connection()).await?;
            sqlx::raw_sql(AssertSqlSafe(self.sql())).execute(session.connection()).await?;
            let put_back = sqlx::query("select pg_catalog.set_config('search_path', $1, true)").bind(path);
            put_back.execute(session.connection()).await
        };
        match done.await {
            Ok(_) => Ok(session.commit().await?),
            Err(error) => {
                session.roll_back().await;
                Err(Error::Database(error))
            }
        }
    }

    fn sql(&self) -> String {
        let (entered, let_in) = (include_str!("../../roles/role.sql"), include_str!("../../citus/let_in.sql"));
        if let Some((role, queues)) = &self.producer {
            let names: Vec<String> = queues.iter().map(|queue| format!("'{queue}'")).collect();
            let queues = include_str!("../../roles/some_queues.sql").replace("'queue_names'", &names.join(", "));
            let text = [entered, include_str!("../../roles/producer.sql"), &queues, let_in].join("\n");
            return self.substitute_names(&text, role);
        }
        let closed =
            [include_str!("../../roles/owner.sql"), include_str!("../../roles/closed.sql"), include_str!("../../citus/own.sql")].join("\n");
        let mut text = self.substitute_names(&closed, &self.name("owner"));
        for (role, given) in ROLES {
            let given: Vec<&str> = std::iter::once(entered).chain(given.iter().copied()).chain([let_in]).collect();
            text = format!("{text}\n{}", self.substitute_names(&given.join("\n"), &self.name(role)));
        }
        text
    }

    /// Replaces the placeholders for names in `text`.
    fn substitute_names(&self, text: &str, role: &str) -> String {
        // All placeholders are marked before the first is replaced, because a name may look like another placeholder.
        let places = [
            ("\"queue_producer\"", "\u{1}", format!("\"{}\"", self.name("producer"))),
            ("\"queue_reader\"", "\u{2}", format!("\"{}\"", self.name("reader"))),
            ("queue_schema", "\u{3}", self.store.schema().to_owned()),
            ("queue_role", "\u{4}", role.to_owned()),
        ];
        let marked = places.iter().fold(text.to_owned(), |text, (place, mark, _)| text.replace(place, mark));
        places.iter().fold(self.store.rewrite_text(&marked), |text, (_, mark, name)| text.replace(mark, name))
    }

    fn name(&self, role: &str) -> String {
        format!("{}_{role}", self.prefix)
    }
}

/// Returns the functions on which `text` grants the execute privilege.
fn granted_functions(text: &str) -> impl Iterator<Item = &str> {
    let lists = text.split("grant execute on function").skip(1).filter_map(|rest| rest.split("to \"").next());
    lists.flat_map(|list| list.split(',')).filter_map(|name| name.trim().strip_prefix("queue."))
}

fn check_role(role: &str) -> Result<(), Error> {
    check_name("role", role)?;
    if role.len() > MAX_NAME_LEN { Err(Error::InvalidName { what: "role", value: role.to_owned(), most: MAX_NAME_LEN }) } else { Ok(()) }
}

/// Returns the SQL that revokes the default privileges of `PUBLIC` on a store.
pub(super) fn revoke_defaults_sql(store: Store) -> String {
    store.rewrite_text(include_str!("../../roles/closed.sql")).replace("queue_schema", store.schema())
}
