//! Simulates the passage of time by shifting all timestamps of a store.

use std::time::Duration;

use crate::TestDb;

/// Statement that shifts every timestamp column, and the expiry times in `job.system`. It does not change ids, which contain the enqueue
/// time.
const AGE: &str = "do $$
  declare part record;
  begin
    set local session_replication_role = replica;
    for part in
      select c.oid::regclass as name, string_agg(format('%1$I = %1$I - interval ''AGE ms''', a.attname), ', ') as changes
      from pg_class c join pg_attribute a on a.attrelid = c.oid
      where c.relnamespace = 'queue'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
        and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' and a.atttypid = 'timestamptz'::regtype
      group by c.oid
    loop
      execute format('update %s set %s', part.name, part.changes);
    end loop;
    update queue.job set system = queue.with_expiry(system, (system ->> 'expires_at')::timestamptz - interval 'AGE ms') where system ? 'expires_at';
  end $$";

impl TestDb {
    /// Simulates the passage of `by` for the whole store. For example, leases with less time left than `by` expire. Then checks the
    /// invariant.
    ///
    /// # Panics
    /// Panics if the data cannot be shifted, or the invariant does not hold.
    pub async fn age(&self, by: Duration) {
        let age = sqlx::AssertSqlSafe(AGE.replace("AGE", &by.as_millis().to_string()));
        sqlx::raw_sql(age).execute(&self.pool).await.unwrap_or_else(|error| panic!("cannot age the store: {error}"));
        self.check_invariant().await;
    }
}
