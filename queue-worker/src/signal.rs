//! The signals that end a process.

/// Completes at the first SIGTERM or SIGINT. A second one ends the process at once, with exit code 130: what it held is recovered by others.
pub async fn shutdown_signal() {
    signal().await;
    tokio::spawn(async {
        signal().await;
        tracing::warn!("second signal: exiting without waiting for handlers");
        std::process::exit(130);
    });
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        tracing::error!("cannot listen for signals; this worker ends only with its process");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
