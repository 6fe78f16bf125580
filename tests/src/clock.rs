//! A wrong wall clock for child processes of a test, which can be changed while they run. A small library (`clock.c`, compiled with the
//! linker's compiler) is loaded before the C library; the monotonic clock is not affected.

use std::{
    env, fs,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use anyhow::{Context as _, Result, bail};

/// A wrong clock. Its processes use it until they end.
#[derive(Debug)]
pub struct Clock {
    folder: PathBuf,
}

impl Clock {
    /// Creates a clock that is off by this number of seconds.
    pub fn new(seconds: i64) -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let folder = env::temp_dir().join(format!("queue-clock-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed)));
        fs::create_dir(&folder)?;
        let clock = Self { folder };
        clock.set(seconds)?;
        let source = clock.folder.join("clock.c");
        fs::write(&source, include_str!("clock.c"))?;
        let made = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(clock.library()).arg(&source).output();
        let made = made.context("no `cc`, with which Rust links too")?;
        if !made.status.success() {
            bail!("cc: {}", String::from_utf8_lossy(&made.stderr));
        }
        Ok(clock)
    }

    /// Changes the offset, in seconds.
    pub fn set(&self, seconds: i64) -> Result<()> {
        // Overwritten in place: processes have the file mapped.
        let mut file = fs::File::options().create(true).truncate(false).write(true).open(self.offset())?;
        Ok(std::io::Write::write_all(&mut file, &seconds.to_ne_bytes())?)
    }

    /// Returns the environment variables that give a process this clock.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [("LD_PRELOAD", self.library().display().to_string()), ("CLOCK_OFFSET", self.offset().display().to_string())]
    }

    fn library(&self) -> PathBuf {
        self.folder.join("clock.so")
    }

    fn offset(&self) -> PathBuf {
        self.folder.join("offset")
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
