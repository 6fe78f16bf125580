//! Shifts the wall clock of a test's child processes by an offset that can change while the processes run. A preloaded
//! shared library overrides the clock functions of the C library. It is compiled from `clock.c` with the compiler that links Rust
//! programs. The monotonic clock is not affected.

use std::{
    env, fs,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use anyhow::{Context as _, Result, bail};

/// Shifted wall clock. Processes started with this clock use it until they exit.
#[derive(Debug)]
pub struct Clock {
    folder: PathBuf,
}

impl Clock {
    /// Creates a clock with an offset of `seconds` from the real time.
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

    /// Changes the offset of the clock, in seconds.
    pub fn set(&self, seconds: i64) -> Result<()> {
        // The file is overwritten in place, because the processes have mapped the file.
        let mut file = fs::File::options().create(true).truncate(false).write(true).open(self.offset())?;
        Ok(std::io::Write::write_all(&mut file, &seconds.to_ne_bytes())?)
    }

    /// Returns the environment variables that make a process use this clock.
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
