//! Server settings under which our statements run: on our own connections from the start, and in a handler's transaction after the handler has
//! finished.

/// Settings that give our statements the same meaning on every server. Planner settings are included because a plan made while a table was empty, or
/// from statistics of that time, scans it sequentially once it is full, or sorts all ready jobs to take a few.
pub(super) const SETTINGS: [(&str, &str); 9] = [
    ("default_transaction_isolation", "read committed"),
    ("search_path", "pg_catalog"),
    ("statement_timeout", "60s"),
    ("lock_timeout", "0"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
    // A statement fails where a policy would hide rows, so that a hidden job is not taken for a deleted one.
    ("row_security", "off"),
];

/// The same except for the isolation level, until the end of a transaction.
macro_rules! our_settings {
    () => {
        "set local search_path = 'pg_catalog'; set local statement_timeout = '60s'; set local lock_timeout = '0';
         set local enable_seqscan = 'off'; set local enable_bitmapscan = 'off';
         set local plan_cache_mode = 'force_generic_plan'; set local jit = 'off'; set local row_security = 'off'; "
    };
}

pub(crate) use our_settings;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_has_the_settings_of_our_connections() {
        let in_transactions = SETTINGS[1..].iter();
        for (name, value) in in_transactions.clone() {
            assert!(our_settings!().contains(&format!("set local {name} = '{value}';")), "{name}");
        }
        assert_eq!(our_settings!().matches("set local").count(), in_transactions.count());
    }
}
