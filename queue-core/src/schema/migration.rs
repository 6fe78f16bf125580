//! Migration of the schema from one version to the next.

/// Migration of the schema from one version to the next. The SQL text is final once released; any change requires a new migration.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub(super) version: i32,
    pub(super) name: &'static str,
    /// SQL text of the migration. If the migration is applied to a store in use, the first statement must take all locks that the
    /// migration needs. Lock waits have a short timeout, so a blocked migration then fails before it does other work.
    pub(super) sql: &'static str,
}

impl Migration {
    /// Creates a migration with the given version, name and SQL text.
    pub const fn new(version: i32, name: &'static str, sql: &'static str) -> Self {
        Self { version, name, sql }
    }

    /// Returns an FNV-1a checksum of the SQL without comments. Comments can therefore be corrected after a release. The checksum detects
    /// accidental edits to the SQL. It does not protect against tampering.
    pub(super) fn hash(&self) -> i64 {
        let code = self.sql.lines().filter_map(|line| line.split("--").next().map(str::trim_end)).filter(|line| !line.is_empty());
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        code.flat_map(|line| line.bytes().chain([b'\n'])).fold(0xcbf2_9ce4_8422_2325, step) as i64
    }
}

/// Returns the names of the tables that the migrations in `all` create, and the name of the table `migration`.
pub(super) fn table_names(all: &[Migration]) -> Vec<&'static str> {
    let made = all.iter().flat_map(|migration| migration.sql.split("\ncreate table queue.").skip(1));
    made.filter_map(|rest| rest.split([' ', '(']).next()).chain(["migration"]).collect()
}
