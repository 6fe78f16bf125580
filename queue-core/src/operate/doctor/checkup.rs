//! What counts as wrong.

use std::time::Duration;

/// From where on something is found to be wrong.
///
/// ```
/// use std::time::Duration;
///
/// use queue_core::operate::Checkup;
///
/// let strict = Checkup { transaction: Duration::from_secs(30), ..Checkup::default() };
/// # let _ = strict;
/// ```
#[derive(Clone, Debug)]
pub struct Checkup {
    /// How long a look may take. Default: 2 s.
    pub patience: Duration,
    /// For how long a transaction may be open. Default: 5 minutes.
    pub transaction: Duration,
    /// How many transactions old a snapshot may be whose time is not known. Default: 1,000,000.
    pub transactions: u32,
    /// How many dead rows a table may have, unless that is less than a fifth of the living ones. Default: 500,000.
    pub dead_rows: u32,
    /// How old the oldest transaction may be that rows are left of. Default: 1,200,000,000; at 2,147,000,000 a server stops.
    pub oldest: u32,
    /// How much of a sequence may be used. Default: 0.8.
    pub sequence: f64,
    /// How many more sessions must fit. Default: 10.
    pub sessions: u32,
    /// From where on a timeout of the login's statements is short. Default: 5 s.
    pub timeout: Duration,
    /// Networks in which a connection need not be encrypted. Default: this machine.
    pub trusted_networks: Vec<String>,
    /// How many days ahead have to be there. Default: 2; workers make 7.
    pub days_ahead: u16,
    /// How many days of history there may be. Default: 60.
    pub days: u16,
    /// How many of the newest dead letters are asked whether they hold up others. Default: 1000.
    pub dead_letters: u16,
    /// For how long the first job of a queue may have waited while a limit has no room. Default: 10 minutes.
    pub waited: Duration,
    /// How long counts of attempts may wait to be added up. Default: 15 minutes.
    pub tallies: Duration,
    /// How far the clocks of this machine and the server may be apart. Default: 2 s.
    pub clock: Duration,
    /// What the names of the store's roles begin with. Default: the schema.
    pub role_prefix: Option<String>,
}

impl Default for Checkup {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(2),
            transaction: Duration::from_mins(5),
            transactions: 1_000_000,
            dead_rows: 500_000,
            oldest: 1_200_000_000,
            sequence: 0.8,
            sessions: 10,
            timeout: Duration::from_secs(5),
            trusted_networks: vec!["127.0.0.0/8".to_owned(), "::1/128".to_owned()],
            days_ahead: 2,
            days: 60,
            dead_letters: 1000,
            waited: Duration::from_mins(10),
            tallies: Duration::from_mins(15),
            clock: Duration::from_secs(2),
            role_prefix: None,
        }
    }
}
