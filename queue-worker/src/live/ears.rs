//! Listens for notifications of many stores over one connection. As with one store, everything works without it, by polling.

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
    runner::{Channel, Listening, NO_SESSION},
};
use sqlx::{ConnectOptions as _, PgPool, postgres::PgListener};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{sleep, timeout},
};

use super::{
    Bell, Pauses, bounded,
    dial::is_same_place,
    jittered,
    wake::{REFUSED, SILENCE, hear},
};
use crate::error::complain;

/// Handle through which stores subscribe.
#[derive(Clone)]
pub(crate) struct Ears(UnboundedSender<Word>);

/// A request from a store.
pub(crate) enum Word {
    Hear(u64, Listener),
    Leave(u64),
}

/// A subscribed store.
pub(crate) struct Listener {
    store: Store,
    bell: Arc<Bell>,
    pauses: Pauses,
    /// Its channel, once listened on.
    channel: Option<String>,
}

/// Unsubscribes a store when dropped.
struct Leave(UnboundedSender<Word>, u64);

impl Drop for Leave {
    fn drop(&mut self) {
        // Without the receiver nothing is listened for.
        let _ = self.0.send(Word::Leave(self.1));
    }
}

impl Ears {
    /// Creates the handle and the listener.
    pub(crate) fn open(pool: PgPool) -> (Self, Listeners) {
        let (said, words) = unbounded_channel();
        (Self(said), Listeners { pool, words, all: HashMap::new(), has_warned: false })
    }

    /// Wakes the store's worker on every notification. Never returns.
    pub(crate) async fn hear(self, store: Store, bell: Arc<Bell>, pauses: Pauses) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        // Without the receiver the store is polled.
        let _ = self.0.send(Word::Hear(number, Listener { store, bell, pauses, channel: None }));
        let _leave = Leave(self.0, number);
        pending::<()>().await;
    }
}

/// Subscribed stores when a connection is given up without an error.
enum Left {
    Some,
    All,
}

/// Result of a request.
enum Minded {
    New(u64),
    /// With the channel that no store uses any more.
    Gone(Option<String>),
}

/// The subscribed stores.
pub(crate) struct Listeners {
    pool: PgPool,
    words: UnboundedReceiver<Word>,
    all: HashMap<u64, Listener>,
    has_warned: bool,
}

impl Listeners {
    /// Listens for all subscribed stores until no handle is left.
    pub(crate) async fn listen(&mut self) {
        loop {
            // Connects only once a store has subscribed.
            while self.all.is_empty() {
                match self.words.recv().await {
                    Some(word) => drop(self.mind(word)),
                    None => return,
                }
            }
            let mut pause = Duration::from_millis(500);
            match self.listen_once().await {
                Ok(Some(Left::All)) => return,
                Ok(Some(Left::Some)) => pause = Duration::ZERO,
                Ok(None) => {
                    pause = REFUSED;
                    if !std::mem::replace(&mut self.has_warned, true) {
                        tracing::warn!("{NO_SESSION}");
                    }
                }
                Err(error) => complain(&error, "cannot listen; polling meanwhile"),
            }
            let again = sleep(jittered(pause));
            tokio::pin!(again);
            loop {
                tokio::select! {
                    () = &mut again => break,
                    word = self.words.recv() => match word {
                        Some(word) => drop(self.mind(word)),
                        None => return,
                    },
                }
            }
        }
    }

    /// Listens until the connection ends. Returns `None` if listening is not permitted.
    async fn listen_once(&mut self) -> sqlx::Result<Option<Left>> {
        let to = self.pool.connect_options();
        let options = (*to).clone().application_name("queue-worker listen").disable_statement_logging();
        let Listening { mut listener, keeps_session } = bounded(Listening::open(options)).await?;
        if !keeps_session {
            return Ok(None);
        }
        for one in self.all.values_mut() {
            one.channel = None;
            one.begin(&mut listener).await?;
        }
        loop {
            tokio::select! {
                word = self.words.recv() => match word.map(|word| self.mind(word)) {
                    None => return Ok(Some(Left::All)),
                    Some(Minded::New(number)) => {
                        if let Some(one) = self.all.get_mut(&number) {
                            one.begin(&mut listener).await?;
                        }
                    }
                    Some(Minded::Gone(Some(channel))) => bounded(listener.unlisten(&channel)).await?,
                    Some(Minded::Gone(None)) => {}
                },
                told = timeout(SILENCE, listener.try_recv()) => match told {
                    Ok(Ok(Some(told))) => {
                        for one in self.all.values().filter(|one| one.channel.as_deref() == Some(told.channel())) {
                            hear(told.payload(), &one.bell, &one.pauses);
                        }
                    }
                    // The driver has replaced a lost connection: notifications may have been missed.
                    Ok(Ok(None)) => self.all.values().for_each(Listener::ring),
                    Ok(Err(error)) => return Err(error),
                    Err(_) if !is_same_place(&self.pool.connect_options(), &to) => return Ok(Some(Left::Some)),
                    // The other end may be alive but no longer written to.
                    Err(_) => {
                        bounded(sqlx::raw_sql("select").execute(&mut listener)).await?;
                    }
                },
            }
        }
    }

    fn mind(&mut self, word: Word) -> Minded {
        match word {
            Word::Hear(number, listener) => {
                self.all.insert(number, listener);
                Minded::New(number)
            }
            Word::Leave(number) => {
                let channel = self.all.remove(&number).and_then(|gone| gone.channel);
                Minded::Gone(channel.filter(|channel| self.all.values().all(|one| one.channel.as_ref() != Some(channel))))
            }
        }
    }
}

impl Listener {
    /// Fails only with the connection: a store without a channel is polled.
    async fn begin(&mut self, listener: &mut PgListener) -> sqlx::Result<()> {
        match bounded(Channel::Wake.name(&mut *listener, self.store)).await {
            Ok(channel) => {
                bounded(listener.listen(&channel)).await?;
                self.channel = Some(channel);
                self.ring();
                Ok(())
            }
            Err(error @ sqlx::Error::Database(_)) => {
                complain(&error, "cannot listen for this store; polling it meanwhile");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn ring(&self) {
        self.bell.ring();
        self.bell.note_control();
    }
}
