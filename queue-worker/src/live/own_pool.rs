//! A pool of the worker's own beside the one that it was given: it leads where that leads.

use std::sync::{Arc, Mutex, PoisonError};

use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::{dial::is_same_place, fresh::Fresh};

/// For what needs several connections, and settings that the user's own have.
pub(crate) struct OwnPool {
    theirs: PgPool,
    own: PgPool,
    name: &'static str,
    fresh: Fresh,
    /// Where theirs led when it was last looked.
    to: Mutex<Arc<PgConnectOptions>>,
}

impl OwnPool {
    /// Of so many connections, which go by this name.
    pub(crate) fn beside(theirs: &PgPool, name: &'static str, connections: usize) -> Self {
        let (to, fresh) = (theirs.connect_options(), Fresh::default());
        let options = PgPoolOptions::new().max_connections(u32::try_from(connections).unwrap_or(u32::MAX));
        let own = fresh.lend(options).connect_lazy_with((*to).clone().application_name(name));
        Self { theirs: theirs.clone(), own, name, fresh, to: Mutex::new(to) }
    }

    /// The pool, led to where theirs leads now.
    pub(crate) fn pool(&self) -> &PgPool {
        let now = self.theirs.connect_options();
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&now, &to) {
            self.own.set_connect_options((*now).clone().application_name(self.name));
            if !is_same_place(&now, &to) {
                self.fresh.renew();
            }
            *to = now;
        }
        &self.own
    }

    /// What is connected may lead to a server that takes no writes any more.
    pub(crate) fn renew(&self) {
        self.fresh.renew();
    }
}
