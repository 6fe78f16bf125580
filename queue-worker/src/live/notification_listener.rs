//! Listens for notifications of many stores over one connection. Notifications only reduce delays, because the stores are also polled.

use std::{
    collections::HashMap,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use queue_core::{
    Store,
    runner::{Channel, ListenerConnection, NO_SESSION},
};
use sqlx::{ConnectOptions as _, PgPool, postgres::PgListener};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{sleep, timeout},
};

use super::{
    Notifier, Pauses, bounded,
    dial::is_same_place,
    jittered,
    sleep::{RECONNECTED, REFUSED, SILENCE, on_notification},
};
use crate::error::warn_throttled;

/// Handle through which stores subscribe to notifications.
#[derive(Clone)]
pub(crate) struct ListenHandle(UnboundedSender<ListenRequest>);

/// Request to start or stop receiving notifications for a store.
pub(crate) enum ListenRequest {
    Subscribe(u64, Subscription),
    Unsubscribe(u64),
}

/// Subscription of a store to its notifications, with the notifier of the store's worker.
pub(crate) struct Subscription {
    store: Store,
    notifier: Arc<Notifier>,
    pauses: Pauses,
    /// Notification channel of the store. `None` until the connection listens on the channel.
    channel: Option<String>,
}

/// Guard that unsubscribes a store on drop.
struct Unsubscription(UnboundedSender<ListenRequest>, u64);

impl Drop for Unsubscription {
    fn drop(&mut self) {
        // Sending fails only if the listener has ended, and an ended listener has no subscriptions.
        let _ = self.0.send(ListenRequest::Unsubscribe(self.1));
    }
}

impl ListenHandle {
    /// Creates a handle and the listener that serves it.
    pub(crate) fn open(pool: PgPool) -> (Self, NotificationListener) {
        let (requests_out, requests) = unbounded_channel();
        (Self(requests_out), NotificationListener { pool, requests, all: HashMap::new(), has_warned: false, has_failed: false })
    }

    /// Subscribes to the store's notifications, and wakes the store's worker on each of them. Never returns. Dropping the future ends the
    /// subscription.
    pub(crate) async fn wake_on_notifications(self, store: Store, notifier: Arc<Notifier>, pauses: Pauses) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        // Sending fails only if the listener has ended. The store is still polled.
        let _ = self.0.send(ListenRequest::Subscribe(number, Subscription { store, notifier, pauses, channel: None }));
        let _unsubscription = Unsubscription(self.0, number);
        pending::<()>().await;
    }
}

/// Reason why the listener closes its connection without an error.
enum SessionEnd {
    /// The pool was redirected to another server. The listener reconnects.
    Redirected,
    /// All handles were dropped. The listener ends.
    NoHandles,
    /// A pooler does not keep the session. The listener tries again later.
    NotKept,
}

/// Effect of a request on the subscriptions.
enum RequestOutcome {
    New(u64),
    /// A store has unsubscribed. Contains the store's channel if no other store uses the channel.
    Gone(Option<String>),
}

/// Listener for the notifications of all subscribed stores.
pub(crate) struct NotificationListener {
    pool: PgPool,
    requests: UnboundedReceiver<ListenRequest>,
    all: HashMap<u64, Subscription>,
    has_warned: bool,
    /// Whether the last connection was lost or could not be opened.
    has_failed: bool,
}

impl NotificationListener {
    /// Listens for all subscribed stores until the last handle is dropped.
    pub(crate) async fn listen(&mut self) {
        loop {
            // No connection is opened until a store has subscribed.
            while self.all.is_empty() {
                match self.requests.recv().await {
                    Some(request) => drop(self.handle(request)),
                    None => return,
                }
            }
            let mut pause = Duration::from_millis(500);
            match self.listen_once().await {
                Ok(SessionEnd::NoHandles) => return,
                Ok(SessionEnd::Redirected) => pause = Duration::ZERO,
                Ok(SessionEnd::NotKept) => {
                    pause = REFUSED;
                    if !std::mem::replace(&mut self.has_warned, true) {
                        tracing::warn!("{NO_SESSION}");
                    }
                }
                Err(error) => {
                    self.has_failed = true;
                    warn_throttled(&error, "cannot listen for notifications; polling until it succeeds");
                }
            }
            let again = sleep(jittered(pause));
            tokio::pin!(again);
            loop {
                tokio::select! {
                    () = &mut again => break,
                    request = self.requests.recv() => match request {
                        Some(request) => drop(self.handle(request)),
                        None => return,
                    },
                }
            }
        }
    }

    /// Listens until the connection must be closed, and returns the reason.
    async fn listen_once(&mut self) -> sqlx::Result<SessionEnd> {
        let to = self.pool.connect_options();
        let options = (*to).clone().application_name("queue-worker listen").disable_statement_logging();
        let ListenerConnection { mut listener, keeps_session } = bounded(ListenerConnection::open(options)).await?;
        if !keeps_session {
            return Ok(SessionEnd::NotKept);
        }
        for one in self.all.values_mut() {
            one.channel = None;
            one.subscribe(&mut listener).await?;
        }
        if self.all.values().any(|one| one.channel.is_some()) && std::mem::take(&mut self.has_failed) {
            tracing::info!("{RECONNECTED}");
        }
        loop {
            tokio::select! {
                request = self.requests.recv() => match request.map(|request| self.handle(request)) {
                    None => return Ok(SessionEnd::NoHandles),
                    Some(RequestOutcome::New(number)) => {
                        if let Some(one) = self.all.get_mut(&number) {
                            one.subscribe(&mut listener).await?;
                        }
                    }
                    Some(RequestOutcome::Gone(Some(channel))) => bounded(listener.unlisten(&channel)).await?,
                    Some(RequestOutcome::Gone(None)) => {}
                },
                notification = timeout(SILENCE, listener.try_recv()) => match notification {
                    Ok(Ok(Some(notification))) => {
                        for one in self.all.values().filter(|one| one.channel.as_deref() == Some(notification.channel())) {
                            on_notification(notification.payload(), &one.notifier, &one.pauses);
                        }
                    }
                    // The driver has replaced a lost connection, so notifications may have been missed.
                    Ok(Ok(None)) => {
                        tracing::info!("{RECONNECTED}");
                        self.all.values().for_each(Subscription::request_probe);
                    }
                    Ok(Err(error)) => return Err(error),
                    Err(_) if !is_same_place(&self.pool.connect_options(), &to) => return Ok(SessionEnd::Redirected),
                    // The database may have moved without closing this connection, so the connection is tested.
                    Err(_) => {
                        bounded(sqlx::raw_sql("select").execute(&mut listener)).await?;
                    }
                },
            }
        }
    }

    fn handle(&mut self, request: ListenRequest) -> RequestOutcome {
        match request {
            ListenRequest::Subscribe(number, listener) => {
                self.all.insert(number, listener);
                RequestOutcome::New(number)
            }
            ListenRequest::Unsubscribe(number) => {
                let channel = self.all.remove(&number).and_then(|gone| gone.channel);
                RequestOutcome::Gone(channel.filter(|channel| self.all.values().all(|one| one.channel.as_ref() != Some(channel))))
            }
        }
    }
}

impl Subscription {
    /// Listens on the store's channel. If the server rejects the query for the channel name, the store is only polled.
    async fn subscribe(&mut self, listener: &mut PgListener) -> sqlx::Result<()> {
        match bounded(Channel::Wake.name(&mut *listener, self.store)).await {
            Ok(channel) => {
                bounded(listener.listen(&channel)).await?;
                self.channel = Some(channel);
                self.request_probe();
                Ok(())
            }
            Err(error @ sqlx::Error::Database(_)) => {
                warn_throttled(&error, "cannot listen for notifications of this store; polling it until it succeeds");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn request_probe(&self) {
        self.notifier.request_probe();
        self.notifier.notify_control();
    }
}
