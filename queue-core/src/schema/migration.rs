//! One step of the schema.

/// One step of the schema. Its text is final once released: a change is a new migration.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub(super) version: i32,
    pub(super) name: &'static str,
    /// On a store that is in use it takes the locks that it needs with its first statement, for it waits for each only a moment.
    pub(super) sql: &'static str,
}

impl Migration {
    /// Of this version.
    pub const fn new(version: i32, name: &'static str, sql: &'static str) -> Self {
        Self { version, name, sql }
    }

    /// FNV-1a of the lines without their comments, which may be mended: tells that a file was edited after its release, no more.
    pub(super) fn hash(&self) -> i64 {
        let code = self.sql.lines().filter_map(|line| line.split("--").next().map(str::trim_end)).filter(|line| !line.is_empty());
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        code.flat_map(|line| line.bytes().chain([b'\n'])).fold(0xcbf2_9ce4_8422_2325, step) as i64
    }
}

/// The tables that these make, and the one of the migrations themselves.
pub(super) fn tables_of(all: &[Migration]) -> Vec<&'static str> {
    let made = all.iter().flat_map(|migration| migration.sql.split("\ncreate table queue.").skip(1));
    made.filter_map(|rest| rest.split([' ', '(']).next()).chain(["migration"]).collect()
}
