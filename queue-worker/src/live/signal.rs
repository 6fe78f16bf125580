//! The signals that end a process.

use std::{sync::mpsc, time::Duration};

use tokio::{sync::oneshot, time::Instant};

/// So soon after the first, a signal is no second one.
const SAME: Duration = Duration::from_secs(1);

/// Completes at the first SIGTERM or SIGINT. A second one ends the process at once, with exit code 130: what it held is recovered by others.
/// What comes within a second of the first is taken for the same: Ctrl-C reaches a process and those that started it, which pass it on, and
/// supervisors signal a group and its leader.
///
/// Signals are heard from this call on, so that one that comes while the worker starts is not the end of the process. They are heard on a thread
/// of their own, so that handlers which block every thread of the runtime cannot keep a process alive.
pub fn shutdown_signal() -> impl Future<Output = ()> + Send + 'static {
    let (first, heard) = oneshot::channel();
    let (ready, is_ready) = mpsc::channel();
    let listening = std::thread::Builder::new().name("queue signals".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(listen(ready, first))
    });
    // A thread that could not listen has dropped its end.
    let listens = listening.is_ok() && is_ready.recv().is_ok();
    async move {
        if !listens || heard.await.is_err() {
            tracing::error!("cannot listen for signals; this worker ends only with its process");
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(unix)]
async fn listen(ready: mpsc::Sender<()>, first: oneshot::Sender<()>) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let _ = ready.send(());
    let mut next = async || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    next().await;
    let since = Instant::now();
    let _ = first.send(());
    loop {
        next().await;
        if since.elapsed() >= SAME {
            exit()
        }
    }
}

#[cfg(not(unix))]
async fn listen(ready: mpsc::Sender<()>, first: oneshot::Sender<()>) -> std::io::Result<()> {
    let _ = ready.send(());
    tokio::signal::ctrl_c().await?;
    let since = Instant::now();
    let _ = first.send(());
    loop {
        tokio::signal::ctrl_c().await?;
        if since.elapsed() >= SAME {
            exit()
        }
    }
}

fn exit() -> ! {
    tracing::warn!("second signal: exiting without waiting for handlers");
    std::process::exit(130)
}
