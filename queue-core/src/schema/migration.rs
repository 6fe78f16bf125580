//! A migration: one step of the schema.

/// One step of the schema. Its text is final once released: a change needs a new migration.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub(super) version: i32,
    pub(super) name: &'static str,
    /// On a store in use its first statement takes all locks that it needs, because it waits for each only briefly.
    pub(super) sql: &'static str,
}

impl Migration {
    /// Creates a migration with this version.
    pub const fn new(version: i32, name: &'static str, sql: &'static str) -> Self {
        Self { version, name, sql }
    }

    /// FNV-1a checksum of the lines without comments, which may be corrected. Only detects that a file was edited after its release.
    pub(super) fn hash(&self) -> i64 {
        let code = self.sql.lines().filter_map(|line| line.split("--").next().map(str::trim_end)).filter(|line| !line.is_empty());
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        code.flat_map(|line| line.bytes().chain([b'\n'])).fold(0xcbf2_9ce4_8422_2325, step) as i64
    }
}

/// Returns the tables created by these migrations, and the table of migrations itself.
pub(super) fn table_names(all: &[Migration]) -> Vec<&'static str> {
    let made = all.iter().flat_map(|migration| migration.sql.split("\ncreate table queue.").skip(1));
    made.filter_map(|rest| rest.split([' ', '(']).next()).chain(["migration"]).collect()
}
