//! Server settings for our statements. Our own connections have these settings from the start, and a handler's transaction gets them after
//! the handler has finished.

/// Settings that give our statements the same behavior on every server. They include planner settings, because a plan that was made while a
/// table was empty is slow once the table is full: it scans the table sequentially, or sorts all ready jobs to take a few.
pub(super) const SETTINGS: [(&str, &str); 9] = [
    ("default_transaction_isolation", "read committed"),
    ("search_path", "pg_catalog"),
    ("statement_timeout", "60s"),
    ("lock_timeout", "0"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
    // Statements fail if a row security policy would hide rows, so that a hidden job is not mistaken for a deleted one.
    ("row_security", "off"),
];

/// Statement that applies these settings, except for the isolation level, until the end of a transaction.
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
