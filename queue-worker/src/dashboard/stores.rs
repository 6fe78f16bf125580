//! Routes requests to the stores of a roster. The state of a store is created on demand and dropped once no request uses it. A store
//! without requests therefore uses no resources.

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
    app::{App, AppState},
    options::Actor,
    problem::{HandlerResult, Problem},
    request_context::{DashboardState, PageScope, RequestContext, STORES_PREFIX},
    store_counts::{StoresOverview, count_stores},
};

/// Maximum age of a cached count.
const COUNT_TTL: Duration = Duration::from_secs(2);

/// State of the dashboard for all stores of a roster.
pub(super) struct Stores {
    roster: Roster,
    dashboard: Arc<DashboardState>,
    /// Routes of a single store, shared by all stores.
    routes: Router<AppState>,
    /// States of the stores with requests in progress, by store name.
    apps: Mutex<HashMap<Arc<str>, Weak<App>>>,
    /// Result of the last count, or `None` before the first count.
    last_count: tokio::sync::Mutex<Option<LastCount>>,
}

/// Time of a count, the counted stores, and the result of the count.
type LastCount = (Instant, Arc<[Member]>, Arc<StoresOverview>);

pub(super) type StoresState = Arc<Stores>;

impl Stores {
    /// Creates the state. `routes` contains the routes of a single store.
    pub(super) fn new(roster: &Roster, dashboard: Arc<DashboardState>, routes: Router<AppState>) -> Self {
        Self { roster: roster.clone(), dashboard, routes, apps: Mutex::default(), last_count: tokio::sync::Mutex::default() }
    }

    /// Returns the number of jobs per store and state. Concurrent requests share one count.
    pub(super) async fn count(&self) -> Arc<StoresOverview> {
        let mut counted = self.last_count.lock().await;
        let members = self.roster.all();
        if let Some((at, of, last)) = &*counted
            && at.elapsed() < COUNT_TTL
            && Arc::ptr_eq(of, &members)
        {
            return Arc::clone(last);
        }
        let last = counted.as_ref().map(|(_, _, last)| &**last);
        let overview = Arc::new(count_stores(members.iter().map(|member| self.app_for(member)), last).await);
        *counted = Some((Instant::now(), members, Arc::clone(&overview)));
        overview
    }

    /// Returns the state of a store. All requests in progress to the store share this state.
    fn app_for(&self, member: &Member) -> AppState {
        // A poisoned lock is safe to use, because no code can panic while the map is inconsistent.
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(app) = apps.get(member.name()).and_then(Weak::upgrade).filter(|app| app.is_for(member)) {
            return app;
        }
        apps.retain(|_, app| app.strong_count() > 0);
        let beside = apps.values().filter_map(Weak::upgrade).find(|app| app.shares_database_with(member));
        let app = Arc::new(App::for_member(&self.roster, member, self.dashboard.clone(), beside.as_deref()));
        apps.insert(app.name.clone(), Arc::downgrade(&app));
        app
    }
}

/// Returns the routes that forward requests to the individual stores.
pub(super) fn routes() -> Router<StoresState> {
    let into = || any(forward);
    Router::new().route("/stores/{store}", into()).route("/stores/{store}/", into()).route("/stores/{store}/{*inside}", into())
}

/// Forwards a request to the routes of its store. The guard middleware has already admitted the request.
async fn forward(
    State(stores): State<StoresState>,
    named: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request,
) -> HandlerResult<Response> {
    let named = named.ok();
    // The path of the outer router may also have a parameter named `store`. The last parameter with this name belongs to the dashboard.
    let name = named.iter().flatten().filter(|(part, _)| *part == "store").last().map(|(_, name)| name);
    let member = name.and_then(|name| stores.roster.get(name.strip_prefix('~').unwrap_or(name)));
    let member = member.ok_or_else(|| Problem::not_found("there is no store of this name"))?;
    *request.uri_mut() = inner_uri(request.uri()).ok_or_else(|| Problem::not_found("not found"))?;
    let context = retain_known_extensions(request.extensions_mut(), &member);
    let mut router = stores.routes.clone().with_state(stores.app_for(&member));
    let Ok(mut response) = router.call(request).await;
    if let Some(context) = context {
        response.extensions_mut().insert(context);
    }
    Ok(response)
}

/// Returns the URI relative to the store's path.
fn inner_uri(uri: &Uri) -> Option<Uri> {
    let named = uri.path().strip_prefix(STORES_PREFIX)?;
    let path = named.find('/').map_or("/", |at| &named[at..]);
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{path}{query}").parse().ok()
}

/// Removes all extensions that the dashboard does not use, including the path parameters of the outer router. Returns the request
/// context, limited to the store.
fn retain_known_extensions(extensions: &mut Extensions, member: &Member) -> Option<RequestContext> {
    let (context, actor, peer) =
        (extensions.remove::<RequestContext>(), extensions.remove::<Actor>(), extensions.remove::<ConnectInfo<SocketAddr>>());
    extensions.clear();
    let context = context.map(|context| RequestContext { scope: PageScope::Member(member.name().to_owned()), ..context });
    if let Some(context) = context.clone() {
        extensions.insert(context);
    }
    if let Some(actor) = actor {
        extensions.insert(actor);
    }
    if let Some(peer) = peer {
        extensions.insert(peer);
    }
    context
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_uri_is_the_unchanged_rest_of_the_path() {
        let inner = |uri: &'static str| inner_uri(&Uri::from_static(uri)).map(|uri| uri.to_string());
        let rest = ["/stores/a", "/stores/a/", "/stores/a?q=1", "/stores/a/jobs/7?x=%2F&y", "/stores/a/queues/b%2Fc/capacity"].map(inner);
        let rest = rest.map(Option::unwrap);
        assert_eq!(rest, ["/", "/", "/?q=1", "/jobs/7?x=%2F&y", "/queues/b%2Fc/capacity"]);
        assert_eq!(inner("/stores/a//evil.example/jobs").as_deref(), Some("//evil.example/jobs"), "no route matches");
    }
}
