//! The figures of a worker at one moment.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use queue_core::{JobState, Store};
use sqlx::PgPool;

use super::{
    list::{self, Metric},
    store::{StoreFigures, StoreState},
};
use crate::{
    live::{Timings, Vitals},
    tally::{Counts, Tallies},
};

/// Where they come from.
#[derive(Clone)]
pub(crate) struct Figures {
    tallies: Tallies,
    vitals: Vitals,
    pool: PgPool,
    store: Arc<StoreFigures>,
}

/// A metric with its values.
pub(super) struct Family {
    pub(super) metric: &'static Metric,
    pub(super) points: Vec<Point>,
}

/// What tells the values of a metric from each other.
pub(super) type Labels = Vec<(&'static str, String)>;

/// One value, by its labels.
pub(super) struct Point {
    pub(super) labels: Labels,
    pub(super) value: Value,
}

pub(super) enum Value {
    Number(f64),
    Timings(Box<Timings>),
}

const QUEUE: &str = "messaging.destination.name";
const JOB_TYPE: &str = "queue.job.type";
const STATE: &str = "queue.state";

/// What the conventions want of every metric of theirs.
const SYSTEM: (&str, &str) = ("messaging.system", "queue");

impl Figures {
    /// Of a worker that counts and marks here.
    pub(crate) fn new(tallies: &Tallies, vitals: &Vitals, pool: &PgPool, store: Store) -> Self {
        tallies.keep_totals();
        let own = Arc::new(StoreFigures::new(pool, store, vitals));
        Self { tallies: tallies.clone(), vitals: vitals.clone(), pool: pool.clone(), store: own }
    }

    /// All of them. The store is asked at most every few seconds, and is not waited for longer than that; of one that does not answer nothing is said.
    pub(super) async fn gather(&self) -> Vec<Family> {
        let found = self.store.look().await;
        let mut families = self.own();
        families.push(Family { metric: &list::REACHABLE, points: vec![number(vec![], f64::from(u8::from(found.is_some())))] });
        families.extend(found.iter().flat_map(|found| of_store(found)));
        families
    }

    /// Those that take no look at the store.
    pub(super) fn own(&self) -> Vec<Family> {
        let mut families = self.of_attempts();
        families.extend(self.of_loops());
        families
    }

    /// What came of attempts.
    fn of_attempts(&self) -> Vec<Family> {
        let [mut consumed, mut run, mut start] = [const { Vec::new() }; 3];
        let [mut failures, mut recovered, mut expired] = [const { Vec::new() }; 3];
        for (queue, job_type, counts) in self.tallies.totals() {
            let own = || vec![(QUEUE, queue.clone()), (JOB_TYPE, job_type.clone())];
            let with = |name, word: &str| [own(), vec![(name, word.to_owned())]].concat();
            let conventional = |labels| [vec![(SYSTEM.0, SYSTEM.1.to_owned())], labels].concat();
            let outcomes = counts.outcomes().into_iter().filter(|(_, attempts)| *attempts > 0);
            consumed.extend(outcomes.map(|(word, attempts)| number(conventional(with("queue.outcome", word)), attempts as f64)));
            let Counts { run: ran, start: waited, .. } = &counts;
            run.extend(timings(conventional(own()), ran));
            start.extend(timings(own(), waited));
            let kinds = counts.failures().into_iter().filter(|(_, attempts)| *attempts > 0);
            failures.extend(kinds.map(|(word, attempts)| number(with("error.type", word), attempts as f64)));
            recovered.extend((counts.crashed > 0).then(|| number(own(), counts.crashed as f64)));
            expired.extend((counts.expired > 0).then(|| number(own(), counts.expired as f64)));
        }
        let family = |metric, points| Family { metric, points };
        vec![
            family(&list::CONSUMED, consumed),
            family(&list::RUN, run),
            family(&list::START, start),
            family(&list::FAILURES, failures),
            family(&list::RECOVERED, recovered),
            family(&list::EXPIRED, expired),
        ]
    }

    /// How the loops and the pool are doing.
    fn of_loops(&self) -> Vec<Family> {
        let Self { vitals, pool, .. } = self;
        let seconds = |age: Option<Duration>| age.map(|age| number(vec![], age.as_secs_f64()));
        let (size, idle) = (f64::from(pool.size()), pool.num_idle() as f64);
        let connections = [("used", (size - idle).max(0.0)), ("idle", idle)];
        let of_pool = || vec![("db.client.connection.pool.name", "handlers".to_owned())];
        let connections =
            connections.map(|(state, count)| number([of_pool(), vec![("db.client.connection.state", state.to_owned())]].concat(), count));
        let most = f64::from(pool.options().get_max_connections());
        let family = |metric, points| Family { metric, points };
        vec![
            family(&list::CLAIM, timings(vec![], &vitals.claim_took()).into_iter().collect()),
            family(&list::SETTLE, timings(vec![], &vitals.settle_took()).into_iter().collect()),
            family(&list::SETTLE_LAG, seconds(Some(vitals.settling.age().unwrap_or_default())).into_iter().collect()),
            family(&list::SETTLE_RETRIES, vec![number(vec![], vitals.settle_retries.load(Relaxed) as f64)]),
            family(&list::CONNECTIONS, connections.into()),
            family(&list::CONNECTIONS_MAX, vec![number(of_pool(), most)]),
            family(&list::PRUNED, seconds(vitals.pruned.age()).into_iter().collect()),
        ]
    }
}

/// What a look at the store has told.
fn of_store(found: &StoreState) -> Vec<Family> {
    let mut jobs: BTreeMap<(&str, JobState), i64> = BTreeMap::new();
    let mut rest: BTreeMap<JobState, i64> = found.jobs.totals.iter().map(|total| (total.state, total.jobs)).collect();
    for count in &found.jobs.counts {
        *jobs.entry((&count.queue, count.state)).or_default() += count.jobs;
        *rest.entry(count.state).or_default() -= count.jobs;
    }
    // What no line of its own tells of: the queues with fewest jobs.
    let rest = rest.into_iter().filter(|(_, jobs)| *jobs > 0).map(|(state, jobs)| ((Counts::OTHER, state), jobs));
    let labels = |queue: &str, state: JobState| vec![(QUEUE, queue.to_owned()), (STATE, state.to_string())];
    let jobs = jobs.into_iter().chain(rest).map(|((queue, state), jobs)| number(labels(queue, state), jobs as f64));
    let partial = found.jobs.totals.iter();
    let partial = partial.map(|total| number(vec![(STATE, total.state.to_string())], f64::from(u8::from(total.partial))));
    let waits = found.oldest.iter().filter_map(|oldest| Some((&oldest.queue, oldest.waited?)));
    let waits = waits.map(|(queue, waited)| number(vec![(QUEUE, queue.clone())], waited.as_secs_f64()));
    let single = |metric, value: Option<f64>| Family { metric, points: value.map(|value| number(vec![], value)).into_iter().collect() };
    vec![
        Family { metric: &list::JOBS, points: jobs.collect() },
        Family { metric: &list::PARTIAL, points: partial.collect() },
        Family { metric: &list::OLDEST, points: waits.collect() },
        single(&list::DAYS, Some(f64::from(found.days_ahead))),
        single(&list::SNAPSHOT, Some(found.snapshot_age as f64)),
        single(&list::TRANSACTION, found.transaction_age),
    ]
}

fn number(labels: Labels, value: f64) -> Point {
    Point { labels, value: Value::Number(value) }
}

/// Nothing of what never was.
fn timings(labels: Labels, timings: &Timings) -> Option<Point> {
    (timings.count() > 0).then(|| Point { labels, value: Value::Timings(Box::new(timings.clone())) })
}
