//! Settings of the server, passed on its command line so that they apply to existing clusters too.

use std::path::Path;

use crate::{EmbeddedOptions, socket::PORT};

/// Tuned for many small transactions on a few hundred connections, on a machine that also runs other programs.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", ""),
    ("port", PORT),
    ("unix_socket_permissions", "0700"),
    ("cluster_name", "queue-worker"),
    ("max_connections", "200"),
    // Allocated only as it is used.
    ("shared_buffers", "256MB"),
    // A server is killed if its container may not use the huge pages it has mapped.
    ("huge_pages", "off"),
    // Checkpoints by time, not by volume: at 70 MB/s of WAL the default would cause one every 15 s.
    ("max_wal_size", "2GB"),
    ("min_wal_size", "256MB"),
    ("checkpoint_timeout", "15min"),
    ("log_checkpoints", "off"),
    // The tables are small, with a high turnover.
    ("autovacuum_naptime", "10s"),
    // Compiling takes longer than any statement of a queue.
    ("jit", "off"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    // Details of errors show rows, and so payloads.
    ("log_error_verbosity", "terse"),
];

/// For data that may be lost in a crash of the machine.
const NOT_DURABLE: &[(&str, &str)] = &[("fsync", "off"), ("full_page_writes", "off"), ("synchronous_commit", "off")];

/// Returns the server's arguments after `-D`. The caller's settings are last, so they take precedence.
pub(crate) fn arguments(options: &EmbeddedOptions, socket: &Path) -> Vec<String> {
    let relaxed = if options.durable { &[] } else { NOT_DURABLE };
    let socket = ("unix_socket_directories", format!("\"{}\"", socket.display()));
    let ours = SETTINGS.iter().chain(relaxed).map(|&(name, value)| (name, value.to_owned())).chain([socket]);
    let theirs = options.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
    ours.chain(theirs).flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]).collect()
}
