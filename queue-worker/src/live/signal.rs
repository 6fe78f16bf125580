//! Shutdown signals of the process.

use std::{sync::mpsc, time::Duration};

use tokio::{sync::oneshot, time::Instant};

/// Time after the first signal within which another signal counts as a repetition of the first signal.
const SAME: Duration = Duration::from_secs(1);

/// Returns a future that completes on the first SIGTERM or SIGINT.
///
/// A further signal, at least one second after the first signal, ends the process immediately with exit code 130. Other workers then
/// recover the jobs of the process. Earlier signals are ignored, because they are usually repetitions of the first signal. Ctrl-C reaches
/// a process and its parents, which may forward the signal. Supervisors signal both a process group and its leader.
///
/// This call starts to listen for signals, so a signal that arrives while the worker is starting does not kill the process. A dedicated
/// thread receives the signals, so handlers that block every thread of the runtime cannot keep the process alive.
pub fn shutdown_signal() -> impl Future<Output = ()> + Send + 'static {
    let (first, received) = oneshot::channel();
    let (ready, is_ready) = mpsc::channel();
    let listening = std::thread::Builder::new().name("queue signals".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(listen(ready, first))
    });
    // If the thread cannot listen for signals, it drops `ready` without a message.
    let listens = listening.is_ok() && is_ready.recv().is_ok();
    async move {
        if !listens || received.await.is_err() {
            tracing::error!("cannot listen for shutdown signals; the worker ends only with its process");
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
