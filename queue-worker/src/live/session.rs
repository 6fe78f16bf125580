//! The settings of the server under which our statements run: on our own connections from their start, in a transaction that a handler
//! shares from where the handler ends.

/// Settings that make a statement of ours mean the same on every server. The planner's are there because a plan that was made while a table
/// was empty, or by figures of that time, is a sequential scan once it is full, or sorts all that is ready to take the first few.
pub(super) const SETTINGS: [(&str, &str); 9] = [
    ("default_transaction_isolation", "read committed"),
    ("search_path", "pg_catalog"),
    ("statement_timeout", "60s"),
    ("lock_timeout", "0"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
    // Where a policy would hide rows, a statement fails: a job that cannot be seen is not taken for one that is gone.
    ("row_security", "off"),
];

/// The same, but for the isolation, until the end of a transaction.
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
