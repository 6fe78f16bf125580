//! Follows the roster: who comes is begun with, who goes is let go.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use queue_core::stores::Member;
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    life::{Common, OneStore, served},
    scout::scout,
    site::Site,
    watched::Watched,
};
use crate::live::Loop;

/// A store that there is at present.
struct Known {
    member: Member,
    number: u64,
    site: Arc<Site>,
    gone: CancellationToken,
    life: JoinHandle<()>,
}

/// A store whose worker cannot be made is tried again this often.
const AGAIN: Duration = Duration::from_secs(5);

/// How often it is looked whether each is looked after.
const LOOK: Duration = Duration::from_mins(1);

/// All stores.
struct Stores {
    common: Arc<Common>,
    sites: Vec<Arc<Site>>,
    known: BTreeMap<String, Known>,
    /// Those that end what they run.
    leaving: Vec<JoinHandle<()>>,
    /// The last one.
    number: u64,
}

/// Until the process is to stop and all stores have.
pub(super) async fn tend(common: Arc<Common>, mut roster: watch::Receiver<Arc<[Member]>>) {
    let stop = common.stop.clone();
    let mut stores = Stores { common, sites: Vec::new(), known: BTreeMap::new(), leaving: Vec::new(), number: super::site::SCOUT };
    loop {
        let members = Arc::clone(&roster.borrow_and_update());
        let all = stores.follow(&members);
        let wait = if all { LOOK } else { AGAIN };
        tokio::select! {
            () = stop.cancelled() => break,
            changed = timeout(wait, roster.changed()) => if let Ok(Err(_)) = changed {
                // Nobody can change it any more.
                stop.cancelled().await;
                break;
            },
        }
    }
    for known in stores.known.into_values() {
        let _ = known.life.await;
    }
    for leaving in stores.leaving {
        let _ = leaving.await;
    }
    for site in stores.sites {
        site.empty.cancel();
    }
}

impl Stores {
    /// Returns whether all could be begun with.
    fn follow(&mut self, members: &[Member]) -> bool {
        let left = |known: &Known| known.life.is_finished() || !members.iter().any(|member| member.is_same(&known.member));
        let gone: Vec<Known> = self.known.extract_if(.., |_, known| left(known)).map(|(_, known)| known).collect();
        for Known { member, number, site, gone, life } in gone {
            if life.is_finished() {
                tracing::error!(store = member.name(), "what looks after this store has ended by itself: it is begun with anew");
            } else {
                tracing::info!(store = member.name(), "this store is let go once its running jobs have ended");
            }
            gone.cancel();
            self.leaving.push(life);
            if site.leave(number) {
                site.empty.cancel();
                self.sites.retain(|known| !Arc::ptr_eq(known, &site));
            }
        }
        self.leaving.retain(|life| !life.is_finished());
        let mut all = true;
        for member in members {
            if !self.known.contains_key(member.name()) {
                all &= self.begin(member);
            }
        }
        all
    }

    fn begin(&mut self, member: &Member) -> bool {
        let (served, direct) = match served(&self.common, member) {
            Ok(made) => made,
            Err(error) => {
                tracing::warn!(store = member.name(), %error, "this store gets no worker; trying again");
                return false;
            }
        };
        let engine = &self.common.loops;
        let site = self.sites.iter().find(|site| site.has(member)).cloned().unwrap_or_else(|| {
            let site = Arc::new(Site::of(member, direct));
            let (empty, scouting) = (site.empty.clone(), Arc::clone(&site));
            drop(engine.supervise(Loop::Stores, move || {
                let (empty, site) = (empty.clone(), Arc::clone(&scouting));
                async move { empty.run_until_cancelled(scout(site)).await }
            }));
            self.sites.push(Arc::clone(&site));
            site
        });
        self.number += 1;
        let (number, gone) = (self.number, CancellationToken::new());
        let watched = Arc::new(Watched::new(member.clone(), number, served));
        site.join(Arc::clone(&watched), engine);
        let one = OneStore { common: Arc::clone(&self.common), site: Arc::clone(&site), watched, gone: gone.clone() };
        let life = engine.handle().spawn(one.live());
        self.known.insert(member.name().to_owned(), Known { member: member.clone(), number, site, gone, life });
        true
    }
}
