//! Server settings for the worker's statements. The worker's dedicated connections have these settings from the start. A handler's
//! transaction gets the settings when the handler has finished.

/// Settings under which the worker's statements behave identically on every server. The planner settings prevent sequential scans and
/// sorts of all ready jobs. Plans with these steps become slow once a table that was empty at planning time has filled up.
pub(super) const SETTINGS: [(&str, &str); 9] = [
    ("default_transaction_isolation", "read committed"),
    ("search_path", "pg_catalog"),
    ("statement_timeout", "60s"),
    ("lock_timeout", "0"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
    // With `off`, a statement fails if a row security policy would hide rows. Otherwise, a hidden job would look like a deleted job.
    ("row_security", "off"),
];

/// Statements that apply all settings, except the isolation level, to the current transaction.
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
