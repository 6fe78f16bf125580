//! Where a request has come to, as links begin from there, and what is one for all of a dashboard.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{acts::Acts, live::VIEWERS, options::Options, show, token::Keyhole};

/// What is one for all of a dashboard, however many stores it is over: who may come in, what they see and do, and how many at a time.
pub(super) struct Door {
    pub(super) options: Options,
    pub(super) keyhole: Keyhole,
    /// What is being done to many jobs.
    pub(super) acts: Acts,
    /// The places for those who watch.
    pub(super) viewers: Arc<Semaphore>,
    /// What its first page is of.
    pub(super) shows: Shows,
}

/// What pages are of.
#[derive(Clone)]
pub(super) enum Shows {
    /// The one store there is, in this schema.
    One(&'static str),
    /// All stores.
    All,
    /// One of them, of this name.
    Member(String),
}

/// Where a request has come to: every request that has passed the door knows.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) door: Arc<Door>,
    /// Where the router is nested, as links begin: nothing, or `/admin/queue`.
    pub(super) root: String,
    pub(super) shows: Shows,
}

/// Below this each store has its pages.
pub(super) const BELOW: &str = "/stores/";

/// Where a store has them. A name of dots alone would be taken for a step up.
pub(super) fn path_of(name: &str) -> String {
    let mark = if name.bytes().all(|byte| byte == b'.') { "~" } else { "" };
    format!("{BELOW}{mark}{}", show::in_address(name))
}

impl Door {
    pub(super) fn new(options: Options, shows: Shows) -> Arc<Self> {
        let (keyhole, viewers) = (Keyhole::new(options.token.as_deref()), Arc::new(Semaphore::new(VIEWERS)));
        Arc::new(Self { options, keyhole, acts: Acts::default(), viewers, shows })
    }
}

impl Way {
    /// As links within what is shown begin.
    pub(super) fn base(&self) -> String {
        match &self.shows {
            Shows::Member(name) => format!("{}{}", self.root, path_of(name)),
            Shows::One(_) | Shows::All => self.root.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path_that_no_browser_takes_for_another() {
        let paths = ["acme", "a.b:c-d_1", ".", "..", "...", ".a", "a..b"].map(path_of);
        assert_eq!(paths, ["/stores/acme", "/stores/a.b:c-d_1", "/stores/~.", "/stores/~..", "/stores/~...", "/stores/.a", "/stores/a..b"]);
    }
}
