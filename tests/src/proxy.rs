//! A TCP proxy in front of the server, one per process, that forwards, delays, holds or drops traffic, and cuts connections. It can be
//! redirected to another server, like a host name after a failover.

mod wire;

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

use self::wire::{Replies, application};

/// Treatment of forwarded bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Forward them.
    Pass,
    /// Forward them after a delay.
    Delay(Duration),
    /// Hold them.
    Hole,
    /// Drop them.
    Drop,
}

/// A proxy; it runs until the test run ends.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// Its own loopback port.
    pub port: u16,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// The port of the server.
    server: AtomicU16,
    mode: watch::Sender<Mode>,
    cuts: watch::Sender<usize>,
    /// Connections accepted before the one with this number are frozen permanently.
    frozen: watch::Sender<usize>,
    accepted: AtomicUsize,
    /// Number of commit replies still to withhold, with their connections cut.
    armed: AtomicUsize,
    fired: AtomicUsize,
}

impl Proxy {
    /// Starts a proxy on a free loopback port to this loopback port.
    pub async fn start(server: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let state = State {
            server: AtomicU16::new(server),
            mode: watch::Sender::new(Mode::Pass),
            cuts: watch::Sender::new(0),
            frozen: watch::Sender::new(0),
            accepted: AtomicUsize::new(0),
            armed: AtomicUsize::new(0),
            fired: AtomicUsize::new(0),
        };
        let proxy = Self { port: listener.local_addr()?.port(), state: Arc::new(state) };
        let state = Arc::clone(&proxy.state);
        tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((client, _)) => drop(tokio::spawn(pass(client, Arc::clone(&state)))),
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        });
        Ok(proxy)
    }

    /// Sets the mode from now on.
    pub fn set(&self, mode: Mode) {
        self.state.mode.send_replace(mode);
    }

    /// Redirects new connections to this loopback port.
    pub fn redirect_to(&self, server: u16) {
        self.state.server.store(server, SeqCst);
    }

    /// Freezes all current connections: they neither forward data nor close, as after a router crash. Returns their number. New connections
    /// work.
    pub fn freeze(&self) -> usize {
        let connections = self.state.cuts.receiver_count();
        self.state.frozen.send_replace(self.state.accepted.load(SeqCst));
        connections
    }

    /// Cuts all current connections; returns their number.
    pub fn cut(&self) -> usize {
        let connections = self.state.cuts.receiver_count();
        self.state.cuts.send_modify(|cuts| *cuts += 1);
        connections
    }

    /// Cuts one connection between its next commit and the reply; returns whether one committed within `patience`.
    pub async fn cut_after_commit(&self, patience: Duration) -> bool {
        let before = self.state.fired.load(SeqCst);
        self.state.armed.store(1, SeqCst);
        let fired = tokio::time::timeout(patience, async {
            while self.state.fired.load(SeqCst) == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let fired = fired.await.is_ok();
        self.state.armed.store(0, SeqCst);
        fired || self.state.fired.load(SeqCst) > before
    }
}

impl State {
    fn fire(&self) -> bool {
        let fires = self.armed.fetch_update(SeqCst, SeqCst, |armed| armed.checked_sub(1)).is_ok();
        self.fired.fetch_add(usize::from(fires), SeqCst);
        fires
    }
}

/// Forwards one connection until either side closes it or it is cut.
async fn pass(client: TcpStream, state: Arc<State>) {
    let mut cuts = state.cuts.subscribe();
    let mut frozen = state.frozen.subscribe();
    let number = state.accepted.fetch_add(1, SeqCst);
    let server = state.server.load(SeqCst);
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (said, name) = watch::channel(String::new());
    let mut passing = pin!(async {
        tokio::select! {
            () = forward(from_client, to_server, &state, said) => {}
            () = reply(from_server, to_client, &state, name) => {}
        }
    });
    tokio::select! {
        () = &mut passing => {}
        _ = cuts.changed() => {}
        // Both sides stay open, unread.
        () = async { drop(frozen.wait_for(|before| number < *before).await) } => drop(cuts.changed().await),
    }
}

/// Forwards from the client. The first message names the application.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: &State, said: watch::Sender<String>) {
    let mut buffer = vec![0; 64 * 1024];
    let mut first = true;
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if std::mem::take(&mut first) {
            said.send_replace(application(&buffer[..count]));
        }
        if hinder(state).await && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Forwards from the server in whole messages, so that the reply to a commit can be withheld.
async fn reply(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: &State, name: watch::Receiver<String>) {
    let mut buffer = vec![0; 64 * 1024];
    let mut replies = Replies::default();
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        replies.push(&buffer[..count]);
        let armed = state.armed.load(SeqCst) > 0;
        let ready = replies.ready(armed, &name.borrow());
        if ready.committed && state.fire() {
            return;
        }
        if hinder(state).await && to.write_all(&ready.bytes).await.is_err() {
            return;
        }
    }
}

/// Waits while the mode holds bytes; returns whether to forward the bytes at hand.
async fn hinder(state: &State) -> bool {
    let mode = *state.mode.borrow();
    match mode {
        Mode::Pass => true,
        Mode::Delay(time) => {
            tokio::time::sleep(time).await;
            true
        }
        Mode::Drop => false,
        Mode::Hole => state.mode.subscribe().wait_for(|mode| *mode != Mode::Hole).await.is_ok(),
    }
}
