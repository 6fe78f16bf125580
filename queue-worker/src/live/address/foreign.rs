//! Connection parameters of libpq and other drivers that sqlx does not support, but that providers use in their URLs.

/// Handling of a parameter that sqlx does not support.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LibpqParameter {
    /// The parameter is already satisfied or has no effect.
    Met,
    /// The parameter has the given equivalent in sqlx.
    Means(String),
    /// The parameter is not supported. The text names the alternative.
    Refused(&'static str),
    Unknown,
}

/// Parameters with the values that are already satisfied. An empty list permits any value.
const MET: [(&str, &[&str]); 23] = [
    ("channel_binding", &["disable", "prefer"]),
    ("client_encoding", &["auto", "utf8", "UTF8"]),
    ("fallback_application_name", &[]),
    ("gssdelegation", &[]),
    ("gssencmode", &["disable", "prefer"]),
    ("gsslib", &[]),
    // A worker detects and drops silent connections on its own.
    ("keepalives", &[]),
    ("keepalives_count", &[]),
    ("keepalives_idle", &[]),
    ("keepalives_interval", &[]),
    ("tcp_user_timeout", &[]),
    ("krbsrvname", &[]),
    ("load_balance_hosts", &["disable"]),
    ("ssl_min_protocol_version", &["TLSv1", "TLSv1.1", "TLSv1.2"]),
    ("sslnegotiation", &["postgres"]),
    ("sslsni", &[]),
    ("uselibpqcompat", &[]),
    // These are parameters of Prisma. Pool sizes are configured elsewhere, and poolers are detected.
    ("connection_limit", &[]),
    ("pgbouncer", &[]),
    ("pool_timeout", &[]),
    ("schema", &["public"]),
    ("socket_timeout", &[]),
    ("statement_cache_size", &[]),
];

impl LibpqParameter {
    pub(super) fn of(key: &str, value: &str) -> Self {
        if MET.iter().any(|(name, values)| *name == key && (values.is_empty() || values.contains(&value))) {
            return Self::Met;
        }
        Self::Refused(match key {
            // System certificates are trusted if no file is named.
            "sslrootcert" if value == "system" => return Self::Means("sslmode=verify-full".to_owned()),
            // This is a parameter of Prisma.
            "schema" => return Self::Means(format!("options[search_path]=%22{value}%22")),
            "channel_binding" => {
                "channel_binding=require is not supported; remove it and set `sslmode=verify-full`, which verifies the server's certificate"
            }
            "client_encoding" => "client_encoding must be UTF8; remove it",
            "gssencmode" => "gssencmode=require is not supported; remove it and set `sslmode=verify-full`",
            "load_balance_hosts" => "load_balance_hosts=random is not supported: the first suitable host is used; remove it",
            "passfile" => "passfile is not supported in the URL; set PGPASSFILE",
            "service" | "servicefile" => "service files are not supported; put the service's host, user and database into the URL",
            "sslaccept" => "sslaccept belongs to another driver; set `sslmode=verify-full` for strict, or `sslmode=require`",
            "sslnegotiation" => "sslnegotiation=direct is not supported; remove it",
            _ => return Self::Unknown,
        })
    }
}
