//! A worker whose settings and job types have been checked: what it is started with.

use queue_core::{Registry, schedule::Declared};

use super::{
    Worker,
    given::{Beside, Checked, Given, complain_of_keyring},
    schedules::declarations,
};
use crate::{
    error::Error,
    live::{Life, OwnLimits, Vitals},
    tally::Tallies,
};

impl Worker {
    /// Checks all that can be checked without a database.
    pub(crate) fn checked(self, (vitals, life, tallies): (Vitals, Life, Tallies), beside: Option<Beside>) -> Result<Checked, Error> {
        let Self { pool, direct, config, states, registry, teller, middleware, ready, broken, declared, schedules, limits, .. } = self;
        config.check()?;
        let direct = direct.unwrap_or_else(|| pool.clone());
        if let Some(error) = broken {
            return Err(error.into());
        }
        let declared = if registry.is_some() { declared } else { Declared::linked().collect() };
        let declares = declarations(declared.into_iter().filter_map(Declared::named).chain(schedules), config.store)?;
        let registry = registry.map_or_else(Registry::linked, Ok)?.served(complain_of_keyring)?;
        registry.check(&states)?;
        let registry = registry.with_ours()?;
        let limits = OwnLimits::new(&registry, &config.queues, &limits)?;
        let given = Given { registry, states, teller, middleware, declares, limits, days: None, vitals, life, tallies, beside };
        Ok(Checked { pool, direct, config, ready, given })
    }
}
