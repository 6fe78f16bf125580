//! Reports the process state to systemd, in a datagram to the socket named by `NOTIFY_SOCKET`.

/// Sends `READY=1` or `STOPPING=1` to the supervisor if `NOTIFY_SOCKET` is set. If sending fails, logs a warning.
#[cfg(unix)]
pub(crate) fn notify_supervisor(state: &str) {
    use std::os::unix::{ffi::OsStrExt as _, net::UnixDatagram};

    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return };
    let sent = UnixDatagram::unbound().and_then(|socket| match name.as_bytes().strip_prefix(b"@") {
        Some(name) => to_abstract(&socket, state, name),
        None => socket.send_to(state.as_bytes(), &name),
    });
    if let Err(error) = sent {
        tracing::warn!(%error, state, "cannot notify the supervisor: no socket listens at NOTIFY_SOCKET");
    }
}

#[cfg(not(unix))]
pub(crate) fn notify_supervisor(_: &str) {}

/// Sends `state` to a socket in the abstract namespace.
#[cfg(target_os = "linux")]
fn to_abstract(socket: &std::os::unix::net::UnixDatagram, state: &str, name: &[u8]) -> std::io::Result<usize> {
    use std::os::{linux::net::SocketAddrExt as _, unix::net::SocketAddr};
    socket.send_to_addr(state.as_bytes(), &SocketAddr::from_abstract_name(name)?)
}

#[cfg(all(unix, not(target_os = "linux")))]
fn to_abstract(_: &std::os::unix::net::UnixDatagram, _: &str, _: &[u8]) -> std::io::Result<usize> {
    Err(std::io::ErrorKind::Unsupported.into())
}
