//! Connection parameters that sqlx does not support. They belong to libpq or to other drivers, and appear in the URLs of database
//! providers.

/// Handling of a parameter that sqlx does not support.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LibpqParameter {
    /// The parameter's requirement is already met, or the parameter has no effect.
    Met,
    /// The parameter is replaced by the given sqlx parameter.
    Means(String),
    /// The parameter is not supported. The error message names an alternative.
    Refused(&'static str),
    Unknown,
}

/// Parameters that need no handling if they have one of the listed values. An empty list permits any value.
const MET: [(&str, &[&str]); 23] = [
    ("channel_binding", &["disable", "prefer"]),
    ("client_encoding", &["auto", "utf8", "UTF8"]),
    ("fallback_application_name", &[]),
    ("gssdelegation", &[]),
    ("gssencmode", &["disable", "prefer"]),
    ("gsslib", &[]),
    // TCP keep-alives are not needed, because a worker detects and drops silent connections itself.
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
    // The following parameters belong to Prisma. `DatabaseOptions::pool_size` sets the pool size, and poolers are detected.
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
            // Without `sslrootcert`, the system's certificates are trusted.
            "sslrootcert" if value == "system" => return Self::Means("sslmode=verify-full".to_owned()),
            // `schema` is a Prisma parameter.
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
