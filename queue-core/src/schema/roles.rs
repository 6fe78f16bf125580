//! The group roles of a store, as SQL: who may do what with it. Knows nothing of the functions that they are let into; the files do.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{
    session::Session,
    store::{Store, check_name},
};
use crate::error::Error;

/// Group roles for a store: `producer`, `worker`, `reader`, `operator` and `owner`, named after the store's schema (`queue_producer`, ..), as which
/// nobody logs in. Users get what they may do by being made members: `grant queue_producer to web`.
///
/// To be applied again after a migration, and whenever it is wanted: what the roles may do afterwards is what this release says, and nothing else.
/// Whoever applies it may create roles, and owns the store or is a superuser.
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
    /// A producer for some queues, instead of the five.
    producer: Option<(String, Vec<String>)>,
}

/// Each role with what it is given, in this order: later ones are members of earlier ones.
const ROLES: [(&str, &[&str]); 4] = [
    ("producer", &[include_str!("../../roles/producer.sql"), include_str!("../../roles/every_queue.sql")]),
    ("worker", &[include_str!("../../roles/worker.sql")]),
    ("reader", &[include_str!("../../roles/reader.sql")]),
    ("operator", &[include_str!("../../roles/operator.sql")]),
];

/// PostgreSQL silently cuts names at 63 bytes.
const LONGEST: usize = 63;

impl Roles {
    /// The five roles of a store.
    pub fn of(store: Store) -> Self {
        Self { store, prefix: store.schema().to_owned(), producer: None }
    }

    /// A producer for these queues only: a role of this name, made if there is none. Its queues are those said last.
    ///
    /// # Errors
    /// [`Error::InvalidName`] for a role or a queue outside the grammar of names; [`Error::OutOfRange`] without any queue, and for one of the five.
    pub fn of_producer(store: Store, role: &str, queues: &[&str]) -> Result<Self, Error> {
        check_role(role)?;
        let of_store = Self::of(store).names();
        if of_store.iter().any(|name| name == role) {
            return Err(Error::OutOfRange {
                what: "the role of a producer",
                value: role.to_owned(),
                range: "another than the store's five",
            });
        }
        if queues.is_empty() {
            return Err(Error::OutOfRange { what: "the number of queues of a producer", value: "0".to_owned(), range: "at least 1" });
        }
        queues.iter().try_for_each(|queue| check_name("queue", queue))?;
        Ok(Self { producer: Some((role.to_owned(), queues.iter().map(|&queue| queue.to_owned()).collect())), ..Self::of(store) })
    }

    /// What the names of the five roles begin with, instead of the schema: roles are the whole server's, and other databases on it may have a
    /// schema of the same name.
    ///
    /// # Errors
    /// [`Error::InvalidName`].
    pub fn prefix(mut self, prefix: &str) -> Result<Self, Error> {
        ROLES.iter().try_for_each(|(role, _)| check_role(&format!("{prefix}_{role}")))?;
        prefix.clone_into(&mut self.prefix);
        Ok(self)
    }

    /// The names of the roles.
    pub fn names(&self) -> Vec<String> {
        match &self.producer {
            Some((role, _)) => vec![role.clone()],
            None => ["owner"].into_iter().chain(ROLES.map(|(role, _)| role)).map(|role| self.name(role)).collect(),
        }
    }

    /// Each role and, beside it, a function that it may execute, as the files have it. What it may as a member of another role is not told.
    pub(crate) fn may_execute(&self) -> Vec<(String, String)> {
        let granted = ROLES.iter().flat_map(|(role, texts)| texts.iter().map(|text| (self.name(role), text)));
        granted
            .flat_map(|(role, text)| functions(text).map(move |function| (role.clone(), function.to_owned())).collect::<Vec<_>>())
            .collect()
    }

    /// The SQL, for those who apply it by other means: one transaction.
    pub fn print(&self) -> String {
        format!("begin;\nset local search_path = pg_catalog, pg_temp;\n\n{}\ncommit;\n", self.sql())
    }

    /// Makes the roles, or brings what they may do up to date. In a transaction of yours all of it is part of that.
    ///
    /// # Errors
    /// The database's. Nothing is changed then.
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
            return self.written(&text, role);
        }
        let closed =
            [include_str!("../../roles/owner.sql"), include_str!("../../roles/closed.sql"), include_str!("../../citus/own.sql")].join("\n");
        let mut text = self.written(&closed, &self.name("owner"));
        for (role, given) in ROLES {
            let given: Vec<&str> = std::iter::once(entered).chain(given.iter().copied()).chain([let_in]).collect();
            text = format!("{text}\n{}", self.written(&given.join("\n"), &self.name(role)));
        }
        text
    }

    /// With the names that are meant.
    fn written(&self, text: &str, role: &str) -> String {
        // All names are marked before the first is put in, for a name may look like another's place.
        let places = [
            ("\"queue_producer\"", "\u{1}", format!("\"{}\"", self.name("producer"))),
            ("\"queue_reader\"", "\u{2}", format!("\"{}\"", self.name("reader"))),
            ("queue_schema", "\u{3}", self.store.schema().to_owned()),
            ("queue_role", "\u{4}", role.to_owned()),
        ];
        let marked = places.iter().fold(text.to_owned(), |text, (place, mark, _)| text.replace(place, mark));
        places.iter().fold(self.store.rewritten(&marked), |text, (_, mark, name)| text.replace(mark, name))
    }

    fn name(&self, role: &str) -> String {
        format!("{}_{role}", self.prefix)
    }
}

/// The functions that a text lets its role execute.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let lists = text.split("grant execute on function").skip(1).filter_map(|rest| rest.split("to \"").next());
    lists.flat_map(|list| list.split(',')).filter_map(|name| name.trim().strip_prefix("queue."))
}

fn check_role(role: &str) -> Result<(), Error> {
    check_name("role", role)?;
    if role.len() > LONGEST { Err(Error::InvalidName { what: "role", value: role.to_owned(), most: LONGEST }) } else { Ok(()) }
}

/// What closes a store.
pub(super) fn closed(store: Store) -> String {
    store.rewritten(include_str!("../../roles/closed.sql")).replace("queue_schema", store.schema())
}
