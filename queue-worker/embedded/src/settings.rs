//! Server settings. The server receives the settings on its command line, so they also apply to existing clusters.

use std::path::Path;

use crate::{EmbeddedOptions, socket::PORT};

/// Settings for many small transactions on up to 200 connections, on a machine that also runs other programs.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", ""),
    ("port", PORT),
    ("unix_socket_permissions", "0700"),
    ("cluster_name", "queue-worker"),
    ("max_connections", "200"),
    // An upper bound, because the system allocates this memory only on first use.
    ("shared_buffers", "256MB"),
    // The kernel kills the server if it maps huge pages that its container is not allowed to use.
    ("huge_pages", "off"),
    // Makes checkpoints less frequent. At 70 MB/s of WAL, the default `max_wal_size` would cause a checkpoint every 15 s.
    ("max_wal_size", "2GB"),
    ("min_wal_size", "256MB"),
    ("checkpoint_timeout", "15min"),
    ("log_checkpoints", "off"),
    // Runs autovacuum frequently, because the tables are small and have a high turnover.
    ("autovacuum_naptime", "10s"),
    // JIT compilation takes longer than executing a queue's statements.
    ("jit", "off"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    // Error details contain rows and therefore payloads.
    ("log_error_verbosity", "terse"),
];

/// Settings for data that may be lost when the machine crashes.
const NOT_DURABLE: &[(&str, &str)] = &[("fsync", "off"), ("full_page_writes", "off"), ("synchronous_commit", "off")];

/// Returns the server's arguments after `-D`. The caller's settings come last, so they take precedence.
pub(crate) fn arguments(options: &EmbeddedOptions, socket: &Path) -> Vec<String> {
    let relaxed = if options.durable { &[] } else { NOT_DURABLE };
    let socket = ("unix_socket_directories", format!("\"{}\"", socket.display()));
    let ours = SETTINGS.iter().chain(relaxed).map(|&(name, value)| (name, value.to_owned())).chain([socket]);
    let theirs = options.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
    ours.chain(theirs).flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]).collect()
}
