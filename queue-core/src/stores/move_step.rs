//! Steps of a tenant's move. Each step is idempotent.

use std::collections::HashSet;

use serde_json::{Value, json};
use sqlx::PgConnection;

use super::{home::Stores, roster::Member};
use crate::{
    connect::TENANT,
    define::{Durability, JobId},
    error::Error,
    schema::{Connection, Session, Store},
};

/// Statements that set the timeouts for fencing the old store. An open transaction that enqueues for the tenant blocks the move. While the
/// move waits, `announce.sql` keeps further such transactions from beginning, for at most one second. The lock timeout is therefore shorter
/// than a second, and the move is retried.
const FENCE_TIMEOUTS: &str = "set local lock_timeout = '900ms'; set local statement_timeout = '8s'";

/// Statements that set the timeouts for holding ordering keys in the new store. Holding a key waits for open transactions that have
/// enqueued under the key.
const HOLD_TIMEOUTS: &str = "set local lock_timeout = '2s'; set local statement_timeout = '60s'";

/// Statements that set the timeouts for counting the remaining jobs. The lock timeout is short, because the move is retried if the store's
/// tables are locked.
const COUNT_TIMEOUTS: &str = "set local lock_timeout = '500ms'; set local statement_timeout = '5min'";

/// Maximum number of ordering keys per transaction in [`MoveStep::fence`] and [`MoveStep::release`]. Other keyed enqueues may wait for such
/// a transaction.
const MAX_KEYS: usize = 500;

/// Context for the steps that move the tenant `key` from the store `old` to the store `new`.
pub(super) struct MoveStep<'a> {
    pub(super) stores: &'a Stores,
    pub(super) key: &'a str,
    pub(super) epoch: i64,
    pub(super) old: Member,
    pub(super) new: Member,
}

/// Jobs of a moving tenant that are waiting or running in the old store.
#[derive(sqlx::FromRow)]
pub(super) struct Remaining {
    pub(super) jobs: i64,
    /// Hashes of the jobs' ordering keys.
    pub(super) keys: Vec<i64>,
}

impl MoveStep<'_> {
    /// Makes the old store reject enqueues for the tenant. Returns false if an open transaction blocks the change, or if the move was
    /// announced within the last two seconds.
    ///
    /// Holds the ordering keys in the new store first. If the new store is unavailable, the tenant therefore stays in the old store. Only
    /// the keys of jobs that are enqueued in the meantime are left for [`MoveStep::arrive`].
    pub(super) async fn fence(&self) -> Result<bool, Error> {
        if !self.leave(&self.new).await? {
            return Ok(false);
        }
        let held: HashSet<i64> = self.held().await?.into_iter().map(|(_, key)| key).collect();
        let mut keys = self.remaining().await?.keys;
        keys.retain(|key| !held.contains(key));
        for keys in keys.chunks(MAX_KEYS) {
            if !self.hold(keys, include_str!("../../stores/arriving.sql")).await? {
                return Ok(false);
            }
        }
        let announce = sqlx::query_scalar::<_, bool>(self.stores.schema.sql(include_str!("../../stores/announce.sql")));
        let announced = announce.bind(self.old.store().schema()).bind(self.key).fetch_optional(self.old.pool()).await?;
        Ok(announced.is_some() && self.leave(&self.old).await?)
    }

    /// Records in the store `member` that the tenant is not in that store in the move's epoch. Returns false if an open transaction blocks
    /// the change.
    async fn leave(&self, member: &Member) -> Result<bool, Error> {
        let mut session = begin(member, FENCE_TIMEOUTS).await?;
        let leave = sqlx::query(self.stores.schema.sql(include_str!("../../stores/leave.sql")));
        let left = leave.bind(member.store().schema()).bind(self.key).bind(self.epoch).execute(session.connection()).await;
        unless_locked(session.end(left.map(drop)).await)
    }

    /// Records in the new store that the tenant has arrived, and holds those of `keys` that are not held yet. Changes nothing if the tenant
    /// has already arrived. Returns false if an open transaction blocks the change.
    pub(super) async fn arrive(&self, keys: &[i64]) -> Result<bool, Error> {
        let held: HashSet<i64> = self.held().await?.into_iter().map(|(_, key)| key).collect();
        let keys: Vec<i64> = keys.iter().copied().filter(|key| !held.contains(key)).collect();
        self.hold(&keys, include_str!("../../stores/arrived.sql")).await
    }

    /// Holds ordering keys in the new store, in the same transaction as the statement `guard`. Holds no keys if `guard` returns no row.
    /// Returns false if an open transaction blocks the change.
    async fn hold(&self, keys: &[i64], guard: &'static str) -> Result<bool, Error> {
        let mut session = begin(&self.new, HOLD_TIMEOUTS).await?;
        let held = self.hold_within(session.connection(), self.new.store(), keys, guard).await;
        unless_locked(session.end(held).await)
    }

    async fn hold_within(&self, connection: &mut PgConnection, store: Store, keys: &[i64], guard: &'static str) -> sqlx::Result<()> {
        let guard = sqlx::query(self.stores.schema.sql(guard)).bind(store.schema()).bind(self.key).bind(self.epoch);
        if guard.fetch_optional(&mut *connection).await?.is_none() || keys.is_empty() {
            return Ok(());
        }
        let hold = sqlx::query(store.sql(include_str!("../../stores/hold.sql"))).bind(keys).bind(self.hold_meta());
        hold.execute(connection).await.map(drop)
    }

    /// Returns the tenant's unfinished jobs in the old store. Counting may take minutes in a store with millions of jobs.
    pub(super) async fn remaining(&self) -> Result<Remaining, Error> {
        let mut session = begin(&self.old, COUNT_TIMEOUTS).await?;
        let left = sqlx::query_as(self.old.store().sql(include_str!("../../stores/left.sql"))).bind(json!({ TENANT: self.key }));
        let left = left.fetch_one(session.connection()).await;
        Ok(session.end(left).await?)
    }

    /// Returns the jobs that hold ordering keys for the move in the new store, each with the hash of its key.
    async fn held(&self) -> Result<Vec<(JobId, i64)>, Error> {
        let held = sqlx::query_as(self.new.store().sql(include_str!("../../stores/held.sql"))).bind(self.hold_meta());
        Ok(held.fetch_all(self.new.pool()).await?)
    }

    /// Releases the ordering keys that the move holds in the new store, except the keys in `keys`. Returns the number of keys still held.
    pub(super) async fn release(&self, keys: &[i64]) -> Result<i64, Error> {
        let held = self.held().await?;
        let remaining: HashSet<i64> = keys.iter().copied().collect();
        let free: Vec<JobId> = held.iter().filter(|(_, key)| !remaining.contains(key)).map(|(id, _)| *id).collect();
        let mut released = 0;
        for ids in free.chunks(MAX_KEYS) {
            let release = sqlx::query_scalar::<_, i64>(self.new.store().sql(include_str!("../../stores/release.sql")));
            released += release.bind(ids).fetch_one(self.new.pool()).await?;
        }
        Ok(i64::try_from(held.len()).unwrap_or(i64::MAX) - released)
    }

    /// Returns the metadata of the jobs that hold ordering keys for the move. The epoch distinguishes these jobs from the jobs of other
    /// moves. The metadata does not mark the jobs as the tenant's, so operations on the tenant's jobs do not include them.
    fn hold_meta(&self) -> Value {
        json!({ "moving_tenant": self.key, "epoch": self.epoch })
    }
}

async fn begin<'m>(member: &'m Member, timeouts: &'static str) -> Result<Session<'m>, Error> {
    let mut session = Session::begin(Connection::Pool(member.pool()), Durability::Full).await?;
    sqlx::raw_sql(timeouts).execute(session.connection()).await?;
    Ok(session)
}

/// Returns false instead of an error if a lock timeout or a deadlock has aborted the transaction.
fn unless_locked(ended: sqlx::Result<()>) -> Result<bool, Error> {
    match ended {
        Ok(()) => Ok(true),
        Err(error) => {
            let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
            if code.is_some_and(|code| code == "55P03" || code == "40P01") { Ok(false) } else { Err(error.into()) }
        }
    }
}
