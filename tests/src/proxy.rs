//! TCP proxy between a client and the server. The proxy forwards, delays, holds or drops traffic, and cuts connections. A test can
//! redirect the proxy to another server, as DNS redirects a host name after a failover.

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

/// Treatment of received bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Forwards the bytes.
    Pass,
    /// Forwards the bytes after a delay.
    Delay(Duration),
    /// Holds the bytes until the mode changes.
    Hole,
    /// Drops the bytes.
    Drop,
}

/// Handle to a running proxy. The proxy runs until the process exits.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// Loopback port of the proxy.
    pub port: u16,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// Loopback port of the server, to which new connections are forwarded.
    server: AtomicU16,
    mode: watch::Sender<Mode>,
    cuts: watch::Sender<usize>,
    /// Number of the first connection that is not frozen. Earlier connections are frozen permanently.
    frozen: watch::Sender<usize>,
    accepted: AtomicUsize,
    /// Number of commit replies that the proxy still has to withhold. For each withheld reply, the proxy cuts the connection.
    armed: AtomicUsize,
    fired: AtomicUsize,
}

impl Proxy {
    /// Starts a proxy that listens on a free loopback port and forwards to the loopback port `server`.
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

    /// Sets how the proxy treats all bytes from now on.
    pub fn set(&self, mode: Mode) {
        self.state.mode.send_replace(mode);
    }

    /// Redirects new connections to the loopback port `server`.
    pub fn redirect_to(&self, server: u16) {
        self.state.server.store(server, SeqCst);
    }

    /// Freezes all current connections. Frozen connections neither forward data nor close, as if a router had crashed. New connections
    /// work. Returns the number of frozen connections.
    pub fn freeze(&self) -> usize {
        let connections = self.state.cuts.receiver_count();
        self.state.frozen.send_replace(self.state.accepted.load(SeqCst));
        connections
    }

    /// Cuts all current connections. Returns the number of cut connections.
    pub fn cut(&self) -> usize {
        let connections = self.state.cuts.receiver_count();
        self.state.cuts.send_modify(|cuts| *cuts += 1);
        connections
    }

    /// Cuts the connection of the first worker or producer that commits a write from now on, before the client receives the reply.
    /// Returns whether such a commit occurred within `patience`.
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

/// Forwards one connection until either side closes the connection or the proxy cuts it.
async fn pass(client: TcpStream, state: Arc<State>) {
    let mut cuts = state.cuts.subscribe();
    let mut frozen = state.frozen.subscribe();
    let number = state.accepted.fetch_add(1, SeqCst);
    let server = state.server.load(SeqCst);
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (sender, name) = watch::channel(String::new());
    let mut passing = pin!(async {
        tokio::select! {
            () = forward(from_client, to_server, &state, sender) => {}
            () = reply(from_server, to_client, &state, name) => {}
        }
    });
    tokio::select! {
        () = &mut passing => {}
        _ = cuts.changed() => {}
        // Both sides of a frozen connection stay open and unread.
        () = async { drop(frozen.wait_for(|before| number < *before).await) } => drop(cuts.changed().await),
    }
}

/// Forwards bytes from the client. Sends the application name, which the client's first message contains, to `sender`.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: &State, sender: watch::Sender<String>) {
    let mut buffer = vec![0; 64 * 1024];
    let mut first = true;
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if std::mem::take(&mut first) {
            sender.send_replace(application(&buffer[..count]));
        }
        if hinder(state).await && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Forwards bytes from the server in whole messages, so that the reply to a commit can be withheld.
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

/// Waits as the mode requires. Returns whether the received bytes must be forwarded.
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
