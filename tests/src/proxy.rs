//! A TCP proxy before the server, one for each process, which passes, delays, swallows or drops what goes through it, and cuts.
//! It can be led to another server, as a name is after a failover.

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

/// What happens to bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// They pass.
    Pass,
    /// Later.
    Delay(Duration),
    /// They wait.
    Hole,
    /// They are lost.
    Drop,
}

/// A proxy; it lives as long as the run.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// Its own port on loopback.
    pub port: u16,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// The port of the server.
    server: AtomicU16,
    mode: watch::Sender<Mode>,
    cuts: watch::Sender<usize>,
    /// Connections accepted before this one's number have gone silent for ever.
    frozen: watch::Sender<usize>,
    accepted: AtomicUsize,
    /// So many replies to commits are still to be kept back, and their connections cut.
    armed: AtomicUsize,
    fired: AtomicUsize,
}

impl Proxy {
    /// On a free port of loopback, to this port of it.
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

    /// What happens to bytes from now on.
    pub fn set(&self, mode: Mode) {
        self.state.mode.send_replace(mode);
    }

    /// New connections go to this port of loopback.
    pub fn lead_to(&self, server: u16) {
        self.state.server.store(server, SeqCst);
    }

    /// The connections that there are now neither pass anything nor end, as after a crash of a router; returns how many. New ones pass.
    pub fn freeze(&self) -> usize {
        let connections = self.state.cuts.receiver_count();
        self.state.frozen.send_replace(self.state.accepted.load(SeqCst));
        connections
    }

    /// Cuts all connections that there are now; returns how many.
    pub fn cut(&self) -> usize {
        let connections = self.state.cuts.receiver_count();
        self.state.cuts.send_modify(|cuts| *cuts += 1);
        connections
    }

    /// Cuts one connection between its next commit and the reply; returns whether there was one within `patience`.
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

/// One connection, until either side ends it or it is cut.
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

/// From the client on; its first message says what the connection is for.
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

/// From the server back, by whole messages, so that the reply to a commit can be kept back.
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

/// Whether the bytes at hand are to go on, once they may.
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
