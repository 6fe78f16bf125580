//! Enqueues jobs whose types are known only by name.

use serde_json::{Value, value::RawValue};
use sqlx::Row as _;

use crate::{
    connect::JobRef,
    define::EnqueueOutcome,
    enqueue::store_error,
    error::Error,
    results::{Queue, QueueConnection},
    schema::check_name,
};

impl<C: QueueConnection> Queue<C> {
    /// Enqueues a job whose type is known only by its name. Calls the SQL function `queue.enqueue_with`. Returns the enqueued job and the
    /// outcome. If another job already holds the uniqueness key, returns that job instead.
    ///
    /// `options` is a JSON object with options of the SQL function, such as `{"queue": "mail", "after": "10 minutes"}`. An omitted option
    /// has the default that workers publish for the type. The payload version defaults to 1. The attribute `#[job]` has no other effect:
    /// the payload is not checked or encrypted, no keys are computed from its fields, and hooks are not called.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// use queue_core::Queue;
    /// use serde_json::{json, value::to_raw_value};
    ///
    /// let payload = to_raw_value(&json!({ "to": "ada@example.org" })).expect("a JSON value is JSON");
    /// let (job, _) = Queue::new(&pool).enqueue_json("send_email", &payload, &json!({ "priority": 10 })).await?;
    /// println!("job {}", job.id());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] for an invalid job type name, [`Error::OutOfRange`] for the internal option `system`, and
    /// [`Error::AtCapacity`] if the queue is full. Returns [`Error::Database`] for an invalid option or payload, or a failed query.
    pub async fn enqueue_json(&self, job_type: &str, payload: &RawValue, options: &Value) -> Result<(JobRef, EnqueueOutcome), Error> {
        check_name("job type name", job_type)?;
        // Callers must not set `system`. The SQL function accepts this option only because the library sets it, for example for the jobs
        // of flows and maps.
        if options.get("system").is_some() {
            return Err(Error::OutOfRange {
                what: "an option of the enqueue",
                value: "system".to_owned(),
                range: "one of `queue.enqueue`",
            });
        }
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/enqueue_with.sql")))
            .bind(job_type)
            .bind(payload.get())
            .bind(options.to_string())
            .bind(false);
        let row = statement.fetch_one(&mut *self.connection().await?).await.map_err(|error| store_error(error, self.store))?;
        Ok((JobRef::from_id(row.try_get(0)?).in_store(self.store), EnqueueOutcome::from_sql(row.try_get(1)?)))
    }
}
