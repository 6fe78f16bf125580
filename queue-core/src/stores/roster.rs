//! The stores that a process works with, each by its name. Lives in memory, and knows nothing of tenants.

use std::{fmt, sync::Arc};

use sqlx::PgPool;
use tokio::sync::watch;

use crate::{
    error::Error,
    schema::{Store, check_name},
};

/// One of many stores: its name, and where it is.
#[derive(Clone)]
pub struct Member {
    name: Arc<str>,
    pool: PgPool,
    store: Store,
}

impl Member {
    /// The store in the database of this pool, under this name.
    ///
    /// # Errors
    /// [`Error::InvalidName`]: a name is 1 to 64 of the characters `A-Z a-z 0-9 _ . : -`.
    pub fn new(name: &str, pool: &PgPool, store: Store) -> Result<Self, Error> {
        check_name("name of a store", name)?;
        Ok(Self { name: name.into(), pool: pool.clone(), store })
    }

    /// What it goes by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Leads to its database.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Its schema.
    pub fn store(&self) -> Store {
        self.store
    }

    /// Whether both are one store: by their schemas, and by where their pools lead.
    pub fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.store == other.store && self.is_beside(other)
    }

    /// Whether both are in one database, as one role.
    pub fn is_beside(&self, other: &Self) -> bool {
        let (one, two) = (self.pool.connect_options(), other.pool.connect_options());
        Arc::ptr_eq(&one, &two)
            || (one.get_host(), one.get_port(), one.get_socket(), one.get_database(), one.get_username())
                == (two.get_host(), two.get_port(), two.get_socket(), two.get_database(), two.get_username())
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member({} in {})", self.name, self.store.schema())
    }
}

/// The stores that a process works with. A clone is the same roster: what is added to one is in all.
///
/// Stores of one database share its connections, so give them clones of one pool.
///
/// ```no_run
/// # fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, stores::{Member, Roster}};
///
/// let roster = Roster::default();
/// for tenant in ["acme", "globex"] {
///     roster.put(Member::new(tenant, &pool, Store::new(tenant)?)?);
/// }
/// assert!(roster.get("acme").is_some() && roster.get("initech").is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Roster(Arc<watch::Sender<Arc<[Member]>>>);

impl Default for Roster {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Arc::from([]))))
    }
}

impl Roster {
    /// Adds a store, or replaces the one of its name.
    pub fn put(&self, member: Member) {
        self.0.send_if_modified(|members| {
            let place = members.binary_search_by(|known| known.name.cmp(&member.name));
            if place.is_ok_and(|at| members[at].is_same(&member)) {
                return false;
            }
            let mut all = members.to_vec();
            match place {
                Ok(at) => all[at] = member,
                Err(at) => all.insert(at, member),
            }
            *members = all.into();
            true
        });
    }

    /// Takes a store off; returns whether it was there. Whoever works on it ends what runs there, and leaves.
    pub fn remove(&self, name: &str) -> bool {
        self.0.send_if_modified(|members| {
            let left: Arc<[Member]> = members.iter().filter(|member| member.name() != name).cloned().collect();
            let is_gone = left.len() < members.len();
            *members = left;
            is_gone
        })
    }

    /// The store of this name.
    pub fn get(&self, name: &str) -> Option<Member> {
        let members = self.0.borrow();
        let at = members.binary_search_by(|known| known.name().cmp(name)).ok()?;
        Some(members[at].clone())
    }

    /// All stores, by name.
    pub fn all(&self) -> Arc<[Member]> {
        Arc::clone(&self.0.borrow())
    }

    /// Tells of every change.
    #[doc(hidden)]
    pub fn watch(&self) -> watch::Receiver<Arc<[Member]>> {
        self.0.subscribe()
    }
}
