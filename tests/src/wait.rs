//! Waits for a condition, or until a database is idle.

use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection};

use crate::{TestDb, db::connect};

/// Waits until `check` returns true.
///
/// # Panics
/// Panics if `check` does not return true within 30 seconds. The timeout is long because test machines occasionally freeze for seconds.
pub async fn eventually(what: &str, check: impl AsyncFnMut() -> bool) {
    within(Duration::from_secs(30), what, check).await;
}

/// Waits like [`eventually`], with another timeout.
///
/// # Panics
/// Panics if `check` does not return true within `timeout`. Each check and the sleep after it count for at most 40 ms together, because
/// a busy machine delays both the checks and the event. Also panics once the elapsed time exceeds eight times `timeout`.
pub async fn within(timeout: Duration, what: &str, mut check: impl AsyncFnMut() -> bool) {
    let (began, mut used) = (Instant::now(), Duration::ZERO);
    loop {
        let at = Instant::now();
        if check().await {
            return;
        }
        let waited = began.elapsed();
        assert!(used < timeout && waited < 8 * timeout, "not within {timeout:?}, which took {waited:?} here: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
        used += at.elapsed().min(CHECK);
    }
}

/// Maximum duration that counts for a check and the sleep after the check. On an idle machine, both together take about this long.
const CHECK: Duration = Duration::from_millis(40);

impl TestDb {
    /// Waits until at most `most` transactions per second end in this database, averaged over four seconds. `most` must be lower than the
    /// rate of a worker in a busy loop.
    ///
    /// # Panics
    /// Panics if the rate is higher in each of twenty intervals.
    pub async fn until_idle(&self, most: f64) {
        const ENDED: &str = "select (xact_commit + xact_rollback)::bigint from pg_stat_database where datname = current_database()";
        let mut on: PgConnection = connect(&self.url).await;
        let mut rates = Vec::new();
        while rates.len() < 20 {
            let (before, began) = (sqlx::query_scalar::<_, i64>(ENDED).fetch_one(&mut on).await.unwrap_or_default(), Instant::now());
            // Sessions publish their statistics once a second, so the interval must be longer than that.
            tokio::time::sleep(Duration::from_secs(4)).await;
            let after: i64 = sqlx::query_scalar(ENDED).fetch_one(&mut on).await.unwrap_or_default();
            let rate = (after - before) as f64 / began.elapsed().as_secs_f64();
            rates.push(rate);
            if rate <= most {
                let _ = on.close().await;
                return;
            }
        }
        panic!("over {most} transactions a second in every span: {rates:.1?}");
    }
}
