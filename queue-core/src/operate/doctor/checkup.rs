//! Thresholds and other parameters of the doctor.

use std::time::Duration;

/// Thresholds beyond which a condition becomes a finding, and other parameters of the checks.
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
    /// Maximum duration of a check. Default: 2 s.
    pub patience: Duration,
    /// Maximum age of an open transaction. Default: 5 minutes.
    pub transaction: Duration,
    /// Maximum age of a snapshot, in transactions. Used if the duration since the snapshot was taken is unknown. Default: 1,000,000.
    pub transactions: u32,
    /// Maximum number of dead rows per table. A table whose dead rows are less than a fifth of its live rows is never a finding. Default:
    /// 500,000.
    pub dead_rows: u32,
    /// Maximum age of the oldest unfrozen transaction id, in transactions. Default: 1,200,000,000. At 2,147,000,000 the server stops
    /// accepting writes.
    pub oldest: u32,
    /// Maximum used fraction of a sequence's range. Default: 0.8.
    pub sequence: f64,
    /// Minimum number of unused connections within the limits of the server, the database and the login. Default: 10.
    pub sessions: u32,
    /// Minimum value of the login's statement timeout and lock timeout. Default: 5 s.
    pub timeout: Duration,
    /// Networks whose connections need no encryption. Default: the loopback addresses.
    pub trusted_networks: Vec<String>,
    /// Minimum number of day partitions for future days. Default: 2; workers create 7.
    pub days_ahead: u16,
    /// Maximum number of day partitions in the history. Default: 60.
    pub days: u16,
    /// Maximum number of dead letters that are checked for blocking an ordering key, newest first. Default: 1000.
    pub dead_letters: u16,
    /// Maximum waiting time of the first ready job under a limit without a free permit. Default: 10 minutes.
    pub waited: Duration,
    /// Maximum age of attempt counts that have not been aggregated. Default: 15 minutes.
    pub tallies: Duration,
    /// Maximum difference between this machine's clock and the server's clock. Default: 2 s.
    pub clock: Duration,
    /// Prefix of the store's role names. Default: the schema name.
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
