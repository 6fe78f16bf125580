//! In-memory list of the stores that a process works with. This module does not depend on tenants.

use std::{fmt, sync::Arc};

use sqlx::PgPool;
use tokio::sync::watch;

use crate::{
    error::Error,
    results::Queue,
    schema::{Store, check_name},
};

/// One of several stores, with its name, database and schema.
///
/// ```no_run
/// # fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, stores::Member};
///
/// let member = Member::new("acme", pool, Store::new("jobs_acme")?)?;
/// assert_eq!((member.name(), member.store().schema()), ("acme", "jobs_acme"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Member {
    name: Arc<str>,
    queue: Queue,
}

impl Member {
    /// Creates a member from a store's name, the pool of its database, and its schema.
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] unless the name has 1 to 64 of the characters `A-Z a-z 0-9 _ . : -`.
    pub fn new(name: &str, pool: &PgPool, store: Store) -> Result<Self, Error> {
        check_name("name of a store", name)?;
        Ok(Self { name: name.into(), queue: Queue::new(pool).store(store) })
    }

    /// Returns the name of the store.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the pool of the store's database.
    pub fn pool(&self) -> &PgPool {
        self.queue.pool()
    }

    /// Returns the [`Store`], which identifies the schema within the database.
    pub fn store(&self) -> Store {
        self.queue.store
    }

    /// Returns a clone of the member's handle to the store.
    pub fn queue(&self) -> Queue {
        self.queue.clone()
    }

    /// Returns whether `self` and `other` are the same store, with the same name, schema and database.
    pub fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.store() == other.store() && self.is_beside(other)
    }

    /// Returns whether `self` and `other` connect to the same database with the same login.
    pub fn is_beside(&self, other: &Self) -> bool {
        let (one, two) = (self.pool().connect_options(), other.pool().connect_options());
        Arc::ptr_eq(&one, &two)
            || (one.get_host(), one.get_port(), one.get_socket(), one.get_database(), one.get_username())
                == (two.get_host(), two.get_port(), two.get_socket(), two.get_database(), two.get_username())
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member({} in {})", self.name, self.store().schema())
    }
}

/// List of the stores that a process works with. Clones share the list, so a store added through one clone appears in all clones.
///
/// Stores in one database share connections if their members are created with clones of one pool.
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
    /// Adds a store. Replaces an existing store of the same name.
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

    /// Removes a store, and returns whether the store was in the list. Workers that serve the store finish their running jobs and stop.
    pub fn remove(&self, name: &str) -> bool {
        self.0.send_if_modified(|members| {
            let left: Arc<[Member]> = members.iter().filter(|member| member.name() != name).cloned().collect();
            let is_gone = left.len() < members.len();
            *members = left;
            is_gone
        })
    }

    /// Returns the store named `name`, or `None` if the list does not contain it.
    pub fn get(&self, name: &str) -> Option<Member> {
        let members = self.0.borrow();
        let at = members.binary_search_by(|known| known.name().cmp(name)).ok()?;
        Some(members[at].clone())
    }

    /// Returns all stores, sorted by name.
    pub fn all(&self) -> Arc<[Member]> {
        Arc::clone(&self.0.borrow())
    }

    /// Returns a receiver that is notified of every change to the list.
    #[doc(hidden)]
    pub fn watch(&self) -> watch::Receiver<Arc<[Member]>> {
        self.0.subscribe()
    }
}
