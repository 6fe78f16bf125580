//! Many stores: which of them a request is for, and its way there. A store that nobody looks at is only a name.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use axum::{
    Router,
    extract::{ConnectInfo, RawPathParams, Request, State, rejection::RawPathParamsRejection},
    http::{Extensions, Uri},
    response::Response,
    routing::any,
};
use queue_core::stores::{Member, Roster};
use tokio::time::Instant;
use tower_service::Service as _;

use super::{
    app::{App, Shared},
    counted::{StoresOverview, count_each},
    options::Actor,
    problem::{Answer, Problem},
    way::{BELOW, Door, Shows, Way},
};

/// For so long it is answered with what was counted last, whoever asks.
const EVERY: Duration = Duration::from_secs(2);

/// The state of the routes that are of all stores.
pub(super) struct Stores {
    roster: Roster,
    door: Arc<Door>,
    /// Those of a store, whichever it is.
    routes: Router<Shared>,
    /// The stores that somebody looks at, by name.
    seen: Mutex<HashMap<Arc<str>, Weak<App>>>,
    /// What was counted last, of which stores, and when.
    counted: tokio::sync::Mutex<Option<LastCount>>,
}

/// When, of which stores, and what.
type LastCount = (Instant, Arc<[Member]>, Arc<StoresOverview>);

pub(super) type SharedStores = Arc<Stores>;

impl Stores {
    /// With the routes of a single one.
    pub(super) fn new(roster: &Roster, door: Arc<Door>, routes: Router<Shared>) -> Self {
        Self { roster: roster.clone(), door, routes, seen: Mutex::default(), counted: tokio::sync::Mutex::default() }
    }

    /// How many jobs each store has in each state: for all who want to know at a time they are asked once.
    pub(super) async fn count(&self) -> Arc<StoresOverview> {
        let mut counted = self.counted.lock().await;
        let members = self.roster.all();
        if let Some((at, of, last)) = &*counted
            && at.elapsed() < EVERY
            && Arc::ptr_eq(of, &members)
        {
            return Arc::clone(last);
        }
        let last = counted.as_ref().map(|(_, _, last)| &**last);
        let overview = Arc::new(count_each(members.iter().map(|member| self.open(member)), last).await);
        *counted = Some((Instant::now(), members, Arc::clone(&overview)));
        overview
    }

    /// A store of the roster as it is now: with what others have of it who look at it, if any do.
    fn open(&self, member: &Member) -> Shared {
        // Nothing is half-written under this lock.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(app) = seen.get(member.name()).and_then(Weak::upgrade).filter(|app| app.is_of(member)) {
            return app;
        }
        seen.retain(|_, app| app.strong_count() > 0);
        let beside = seen.values().filter_map(Weak::upgrade).find(|app| app.is_beside(member));
        let app = Arc::new(App::listed(&self.roster, member, self.door.clone(), beside.as_deref()));
        seen.insert(app.name.clone(), Arc::downgrade(&app));
        app
    }
}

/// The ways to each.
pub(super) fn routes() -> Router<SharedStores> {
    let into = || any(enter);
    Router::new().route("/stores/{store}", into()).route("/stores/{store}/", into()).route("/stores/{store}/{*inside}", into())
}

/// Goes on as a request to the dashboard of this one store. The door has let it in.
async fn enter(
    State(stores): State<SharedStores>,
    named: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request,
) -> Answer<Response> {
    let named = named.ok();
    // Where this is nested may have a part of that name as well, which stands before it.
    let name = named.iter().flatten().filter(|(part, _)| *part == "store").last().map(|(_, name)| name);
    let member = name.and_then(|name| stores.roster.get(name.strip_prefix('~').unwrap_or(name)));
    let member = member.ok_or_else(|| Problem::missing("there is no store of this name here"))?;
    *request.uri_mut() = inside(request.uri()).ok_or_else(|| Problem::missing("there is nothing here"))?;
    let way = leave_behind(request.extensions_mut(), &member);
    let mut router = stores.routes.clone().with_state(stores.open(&member));
    let Ok(mut response) = router.call(request).await;
    if let Some(way) = way {
        response.extensions_mut().insert(way);
    }
    Ok(response)
}

/// What is asked for within the store.
fn inside(uri: &Uri) -> Option<Uri> {
    let named = uri.path().strip_prefix(BELOW)?;
    let path = named.find('/').map_or("/", |at| &named[at..]);
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{path}{query}").parse().ok()
}

/// The parts of the address that were found on the way are no parts of what is asked for: only what is known of a request goes on.
fn leave_behind(extensions: &mut Extensions, member: &Member) -> Option<Way> {
    let (way, actor, peer) = (extensions.remove::<Way>(), extensions.remove::<Actor>(), extensions.remove::<ConnectInfo<SocketAddr>>());
    extensions.clear();
    let way = way.map(|way| Way { shows: Shows::Member(member.name().to_owned()), ..way });
    if let Some(way) = way.clone() {
        extensions.insert(way);
    }
    if let Some(actor) = actor {
        extensions.insert(actor);
    }
    if let Some(peer) = peer {
        extensions.insert(peer);
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_within_a_store_is_the_rest_of_the_path_as_it_was_said() {
        let asked = |uri: &'static str| inside(&Uri::from_static(uri)).map(|uri| uri.to_string());
        let rest = ["/stores/a", "/stores/a/", "/stores/a?q=1", "/stores/a/jobs/7?x=%2F&y", "/stores/a/queues/b%2Fc/capacity"].map(asked);
        let rest = rest.map(Option::unwrap);
        assert_eq!(rest, ["/", "/", "/?q=1", "/jobs/7?x=%2F&y", "/queues/b%2Fc/capacity"]);
        assert_eq!(asked("/stores/a//evil.example/jobs").as_deref(), Some("//evil.example/jobs"), "which is nowhere");
    }
}
