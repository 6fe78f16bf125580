//! Tells whoever started this process how it is, in systemd's way: a datagram to the socket that `NOTIFY_SOCKET` names.

/// Says it, if anybody wants to know: `READY=1` or `STOPPING=1`. One who cannot be told is no reason to stop working.
#[cfg(unix)]
pub(crate) fn tell_supervisor(state: &str) {
    use std::os::unix::{ffi::OsStrExt as _, net::UnixDatagram};

    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return };
    let told = UnixDatagram::unbound().and_then(|socket| match name.as_bytes().strip_prefix(b"@") {
        Some(name) => to_abstract(&socket, state, name),
        None => socket.send_to(state.as_bytes(), &name),
    });
    if let Err(error) = told {
        tracing::warn!(%error, state, "cannot tell the supervisor; NOTIFY_SOCKET names no socket that listens");
    }
}

#[cfg(not(unix))]
pub(crate) fn tell_supervisor(_: &str) {}

/// Of a socket that has a name but no file.
#[cfg(target_os = "linux")]
fn to_abstract(socket: &std::os::unix::net::UnixDatagram, state: &str, name: &[u8]) -> std::io::Result<usize> {
    use std::os::{linux::net::SocketAddrExt as _, unix::net::SocketAddr};
    socket.send_to_addr(state.as_bytes(), &SocketAddr::from_abstract_name(name)?)
}

#[cfg(all(unix, not(target_os = "linux")))]
fn to_abstract(_: &std::os::unix::net::UnixDatagram, _: &str, _: &[u8]) -> std::io::Result<usize> {
    Err(std::io::ErrorKind::Unsupported.into())
}
