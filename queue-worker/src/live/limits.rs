//! Limits that a worker's code declares for job types and queues.

use std::collections::{BTreeMap, BTreeSet};

use queue_core::{Store, check_name, options::Limit, registry::Registry};
use sqlx::PgConnection;

use super::bounded;
use crate::error::Error;

/// All limits that the worker declares, as parameters for `declare_limits.sql`.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnLimits {
    /// All names of the worker's job types.
    types: Vec<String>,
    /// Queues that the worker serves, and queues with a limit.
    queues: Vec<String>,
    /// Pairs of job type and limit name.
    of_types: Vec<(String, String)>,
    limits: BTreeMap<String, Limit>,
}

impl OwnLimits {
    /// Collects the limits declared for registered job types and for queues.
    pub(crate) fn new(registry: &Registry, named: &[(String, usize)], queues: &[(String, Limit)]) -> Result<Self, Error> {
        let mut own = Self {
            types: registry.names().map(|(name, _)| name.to_owned()).collect(),
            queues: named.iter().map(|(queue, _)| queue.clone()).collect(),
            ..Self::default()
        };
        for registration in registry.types() {
            let options = registration.options();
            let names = || std::iter::once(options.name).chain(options.aliases.iter().copied());
            let type_limit = format!("type:{}", options.name);
            for limit in options.limits {
                let name = limit.name.map_or_else(|| type_limit.clone(), str::to_owned);
                own.of_types.extend(names().map(|of| (of.to_owned(), name.clone())));
                own.add(name, *limit)?;
            }
            // An operator can limit the type under any of its names. The limit also covers jobs stored under the other names.
            let others =
                |of: &'static str| names().filter(move |other| *other != of).map(move |other| (of.to_owned(), format!("type:{other}")));
            own.of_types.extend(names().flat_map(others));
        }
        for (queue, limit) in queues {
            check_name("queue name", queue)?;
            own.queues.push(queue.clone());
            own.add(format!("queue:{queue}"), *limit)?;
        }
        own.of_types = own.of_types.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        Ok(own)
    }

    fn add(&mut self, name: String, limit: Limit) -> Result<(), Error> {
        if let Some(fault) = limit.fault() {
            return Err(Error::Limit { name, why: fault });
        }
        let mut limit = limit;
        limit.name = None;
        let known = self.limits.entry(name.clone()).or_insert(limit);
        if known.keyed != limit.keyed {
            return Err(Error::Limit {
                name,
                why: "one type sets a key and another does not; set a key for all types or for none".to_owned(),
            });
        }
        if !known.has_values() {
            *known = limit;
        }
        if limit.has_values() && *known != limit {
            return Err(Error::Limit { name, why: "two types set different values; set them for one type only".to_owned() });
        }
        Ok(())
    }

    /// Returns the scopes of the limits as pairs of queue and job type. `*` stands for any queue or type.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = (String, String)> {
        let types =
            self.of_types.iter().filter(|(_, name)| self.limits.contains_key(name)).map(|(job_type, _)| ("*".to_owned(), job_type.clone()));
        let queues = self.limits.keys().filter_map(|name| name.strip_prefix("queue:")).map(|queue| (queue.to_owned(), "*".to_owned()));
        types.chain(queues)
    }

    /// Declares the limits in the store, unless the store already has them.
    pub(crate) async fn declare(&self, connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
        let narrow = |count: Option<u32>| count.map(u32::cast_signed);
        let limits = || self.limits.values();
        let (of_types, of_names): (Vec<&str>, Vec<&str>) = self.of_types.iter().map(|(of, name)| (of.as_str(), name.as_str())).unzip();
        let statement = sqlx::query(store.sql(include_str!("../../sql/declare_limits.sql")))
            .bind(&self.types)
            .bind(&self.queues)
            .bind(of_types)
            .bind(of_names)
            .bind(self.limits.keys().cloned().collect::<Vec<_>>())
            .bind(limits().map(|limit| narrow(limit.concurrency)).collect::<Vec<_>>())
            .bind(limits().map(|limit| narrow(limit.rate.map(|(starts, _)| starts))).collect::<Vec<_>>())
            .bind(
                limits()
                    .map(|limit| limit.rate.map(|(_, period)| i64::try_from(period.as_millis()).unwrap_or(i64::MAX)))
                    .collect::<Vec<_>>(),
            )
            .bind(limits().map(|limit| narrow(limit.burst)).collect::<Vec<_>>())
            .bind(limits().map(|limit| limit.keyed).collect::<Vec<_>>());
        bounded(statement.execute(connection)).await.map(drop)
    }
}
