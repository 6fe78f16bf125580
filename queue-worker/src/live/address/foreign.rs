//! Parameters of libpq, and of other drivers, that ours does not know: providers hand out URLs that have them.

/// What such a parameter comes to here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// What it asks for is so anyway, or nothing depends on it.
    Met,
    /// The same in our driver's words.
    Means(String),
    /// Cannot be had: what to write instead.
    Refused(&'static str),
    Unknown,
}

/// Whose values ask for nothing that is not so; of any value where none is named.
const MET: [(&str, &[&str]); 23] = [
    ("channel_binding", &["disable", "prefer"]),
    ("client_encoding", &["auto", "utf8", "UTF8"]),
    ("fallback_application_name", &[]),
    ("gssdelegation", &[]),
    ("gssencmode", &["disable", "prefer"]),
    ("gsslib", &[]),
    // A worker gives up a connection that has fallen silent by itself.
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
    // Prisma's. Pools have their sizes elsewhere, and a pooler is found out.
    ("connection_limit", &[]),
    ("pgbouncer", &[]),
    ("pool_timeout", &[]),
    ("schema", &["public"]),
    ("socket_timeout", &[]),
    ("statement_cache_size", &[]),
];

impl Foreign {
    pub(super) fn of(key: &str, value: &str) -> Self {
        if MET.iter().any(|(name, values)| *name == key && (values.is_empty() || values.contains(&value))) {
            return Self::Met;
        }
        Self::Refused(match key {
            // Certificates of the system are what is trusted where no file is named.
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
