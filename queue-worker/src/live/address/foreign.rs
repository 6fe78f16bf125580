//! Connection parameters of libpq and other drivers that ours does not know, but that providers put into their URLs.

/// Meaning of such a parameter here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LibpqParameter {
    /// Satisfied already, or without effect.
    Met,
    /// The equivalent in our driver's terms.
    Means(String),
    /// Not supported: what to write instead.
    Refused(&'static str),
    Unknown,
}

/// Parameters and values that are satisfied already; any value if none is listed.
const MET: [(&str, &[&str]); 23] = [
    ("channel_binding", &["disable", "prefer"]),
    ("client_encoding", &["auto", "utf8", "UTF8"]),
    ("fallback_application_name", &[]),
    ("gssdelegation", &[]),
    ("gssencmode", &["disable", "prefer"]),
    ("gsslib", &[]),
    // A worker drops silent connections by itself.
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
    // Prisma's. Pool sizes are configured elsewhere, and poolers are detected.
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
            // Prisma's.
            "schema" => return Self::Means(format!("options[search_path]=%22{value}%22")),
            "channel_binding" => {
                "channel_binding=require cannot be had; leave it out, and say `sslmode=verify-full`, so that the server is known by its certificate"
            }
            "client_encoding" => "client_encoding must be UTF8; leave it out",
            "gssencmode" => "gssencmode=require cannot be had; leave it out, and say `sslmode=verify-full`",
            "load_balance_hosts" => "load_balance_hosts=random cannot be had: of the hosts that will do the first is taken; leave it out",
            "passfile" => "passfile is not read from the URL; set PGPASSFILE",
            "service" | "servicefile" => "service files are not read; write the service's host, user and database into the URL",
            "sslaccept" => "sslaccept is another driver's; say `sslmode=verify-full` for strict, or `sslmode=require`",
            "sslnegotiation" => "sslnegotiation=direct cannot be had; leave it out",
            _ => return Self::Unknown,
        })
    }
}
