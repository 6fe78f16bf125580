//! Moving a tenant: what is enqueued goes to the new store, and what waits in the old one is run there. All of it stands at home, so whoever comes
//! goes on with a move wherever somebody has left it.
//!
//! 1. Home says that the tenant is in the new store, under another epoch, and leaves the old one.
//! 2. The old store's database says that the tenant has left. That waits for transactions that enqueue there, and none can from then on.
//! 3. Once nothing of the tenant waits or runs in the old store, home says that the move has ended.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;

use super::{home::Stores, known::Place, roster::Member};
use crate::{
    connect::TENANT,
    define::Durability,
    error::Error,
    schema::{Connection, Session},
};

/// A tenant that moves.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Move {
    /// The tenant's key.
    pub key: String,
    /// The store that it leaves.
    pub from: String,
    /// The store that it is in.
    pub to: String,
    /// Since when.
    pub since: Option<DateTime<Utc>>,
    /// Whether nobody can enqueue into the old store any more.
    pub is_fenced: bool,
}

/// How far a move is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum MoveState {
    /// Transactions are open that enqueue into the old store: they are waited for.
    Fencing,
    /// So many of its jobs wait or run in the old store still.
    Draining(i64),
    /// The tenant does not move.
    Over,
}

/// So many are looked at.
const MOST: i64 = 1000;

/// An enqueue that is open holds up the move, and the move those that come after it. So it is waited for only this long, and tried again.
const PROMPT: &str = "set local lock_timeout = '500ms'; set local statement_timeout = '8s'";

/// Whoever has tables of the store locked is not waited for longer either.
const PATIENT: &str = "set local lock_timeout = '500ms'; set local statement_timeout = '5min'";

impl Stores {
    /// Begins to move a tenant into another store. From now on what is enqueued for it goes there; what waits in the old store is run there, retries and
    /// all, by workers that work on both. Dead letters stay where they are. [`Stores::tend`] brings it to its end, or [`Stores::go_on`].
    ///
    /// Jobs of the new store do not wait for those of the old one: the order of an ordering key, the turns of fair keys, uniqueness, capacities and
    /// limits hold in each store by itself while the tenant moves.
    ///
    /// # Errors
    /// [`Error::CannotMove`] if it is there or moves already, or the store is closed; [`Error::NotPlaced`]; [`Error::NoStore`]; the database's.
    pub async fn move_tenant(&self, key: &str, store: &str) -> Result<(), Error> {
        self.refresh_right().await?;
        self.member(store)?;
        let statement = sqlx::query_scalar::<_, i64>(self.schema.sql(include_str!("../../stores/move.sql"))).bind(key).bind(store);
        let begun = statement.fetch_optional(&self.home).await?;
        self.known.forget(key);
        match begun {
            Some(epoch) => {
                tracing::info!(key, store, epoch, "a tenant moves into this store");
                Ok(())
            }
            None if self.look(key).await?.is_none() => Err(Error::NotPlaced { key: key.to_owned() }),
            None => Err(Error::CannotMove { key: key.to_owned(), store: store.to_owned() }),
        }
    }

    /// Brings a tenant's move as far as it goes now. Any number may do it at once.
    ///
    /// # Errors
    /// [`Error::NotPlaced`]; [`Error::NoStore`] if this process does not know the old store; the database's.
    pub async fn go_on(&self, key: &str) -> Result<MoveState, Error> {
        let Some(Place { leaves, epoch, is_fenced, .. }) = self.look(key).await? else {
            return Err(Error::NotPlaced { key: key.to_owned() });
        };
        let Some(from) = leaves else { return Ok(MoveState::Over) };
        let member = self.member(&from)?;
        if !is_fenced && !self.leave(key, &member, epoch).await? {
            return Ok(MoveState::Fencing);
        }
        let left = self.left(key, &member).await?;
        if left > 0 {
            return Ok(MoveState::Draining(left));
        }
        let moved = sqlx::query(self.schema.sql(include_str!("../../stores/moved.sql"))).bind(key).bind(epoch);
        if moved.execute(&self.home).await?.rows_affected() > 0 {
            tracing::info!(key, from, "a tenant has moved: nothing of it is left to run in this store");
        }
        Ok(MoveState::Over)
    }

    /// Sees to it that nobody enqueues into the old store any more; returns whether it has.
    async fn leave(&self, key: &str, member: &Member, epoch: i64) -> Result<bool, Error> {
        let mut session = Session::begin(Connection::Pool(member.pool()), Durability::Full).await?;
        sqlx::raw_sql(PROMPT).execute(session.connection()).await?;
        let leave = sqlx::query(self.schema.sql(include_str!("../../stores/leave.sql")));
        let left = leave.bind(member.store().schema()).bind(key).bind(epoch).execute(session.connection()).await;
        if let Err(error) = session.end(left).await {
            let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
            return if code.is_some_and(|code| code == "55P03") { Ok(false) } else { Err(error.into()) };
        }
        let fenced = sqlx::query(self.schema.sql(include_str!("../../stores/fenced.sql"))).bind(key).bind(epoch);
        fenced.execute(&self.home).await?;
        Ok(true)
    }

    /// How many of its jobs go on by themselves in the old store. In one of millions that takes a while.
    async fn left(&self, key: &str, member: &Member) -> Result<i64, Error> {
        let mut session = Session::begin(Connection::Pool(member.pool()), Durability::Full).await?;
        sqlx::raw_sql(PATIENT).execute(session.connection()).await?;
        let left = sqlx::query_scalar(member.store().sql(include_str!("../../stores/left.sql"))).bind(json!({ TENANT: key }));
        let left = left.fetch_one(session.connection()).await;
        Ok(session.end(left).await?)
    }

    /// The tenants that move, those first that have for longest; up to a thousand.
    ///
    /// # Errors
    /// The database's.
    pub async fn moves(&self) -> Result<Vec<Move>, Error> {
        #[derive(sqlx::FromRow)]
        struct Row {
            key: String,
            #[sqlx(flatten)]
            place: Place,
        }
        let statement = sqlx::query_as(self.schema.sql(include_str!("../../stores/moves.sql"))).bind(MOST);
        let rows: Vec<Row> = statement.fetch_all(&self.home).await?;
        let moving = |Row { key, place: Place { store, leaves, is_fenced, moved_at, .. } }| {
            leaves.map(|from| Move { key, from, to: store, since: moved_at, is_fenced })
        };
        Ok(rows.into_iter().filter_map(moving).collect())
    }
}
