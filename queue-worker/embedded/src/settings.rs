//! The server's settings, given on its command line so that they hold for clusters of every age.

use std::path::Path;

use crate::{EmbeddedOptions, socket::PORT};

/// For many small transactions of a few hundred connections, on a machine that also does other things.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", ""),
    ("port", PORT),
    ("unix_socket_permissions", "0700"),
    ("cluster_name", "queue-worker"),
    ("max_connections", "200"),
    // Taken from the machine only as it is used.
    ("shared_buffers", "256MB"),
    // Huge pages that a container may not use kill the server.
    ("huge_pages", "off"),
    // Checkpoints by time, not by volume: at 70 MB of WAL a second the default would make one every 15 s.
    ("max_wal_size", "2GB"),
    ("min_wal_size", "256MB"),
    ("checkpoint_timeout", "15min"),
    ("log_checkpoints", "off"),
    // Small tables with a high turnover.
    ("autovacuum_naptime", "10s"),
    // Compiling costs more than any statement of a queue.
    ("jit", "off"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    // Details of errors show rows, and so payloads.
    ("log_error_verbosity", "terse"),
];

/// For data that may be lost with the machine.
const NOT_DURABLE: &[(&str, &str)] = &[("fsync", "off"), ("full_page_writes", "off"), ("synchronous_commit", "off")];

/// The server's arguments after `-D`, the caller's settings last: the last one counts.
pub(crate) fn arguments(options: &EmbeddedOptions, socket: &Path) -> Vec<String> {
    let relaxed = if options.durable { &[] } else { NOT_DURABLE };
    let socket = ("unix_socket_directories", format!("\"{}\"", socket.display()));
    let ours = SETTINGS.iter().chain(relaxed).map(|&(name, value)| (name, value.to_owned())).chain([socket]);
    let theirs = options.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
    ours.chain(theirs).flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]).collect()
}
