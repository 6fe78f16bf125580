//! Demo job that reads one file and stores its digest.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use queue_core::{Context, Failure, Handler, JobResult, job};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{table, walk};

/// Job that stores the digest of one file. A file that cannot be read is tried three times. Then the job becomes a dead letter.
#[job(name = "demo_hash_file", queue = "demo", max_attempts = 3, backoff = fixed("200ms"), state(Folder, Stored))]
#[derive(Serialize, Deserialize)]
pub(crate) struct HashFile {
    pub(crate) run: i64,
    /// File path, encoded by `walk::text`.
    pub(crate) path: String,
}

/// Folder that contains the files. The paths in the jobs are relative to this folder.
pub(crate) struct Folder(pub(crate) PathBuf);

/// Number of digests stored by this process.
#[derive(Clone, Default)]
pub(crate) struct Stored(pub(crate) Arc<AtomicU64>);

impl Handler for HashFile {
    async fn run(self, cx: &Context) -> JobResult {
        let path = cx.state::<Folder>().0.join(walk::path(&self.path));
        let stop = cx.cancelled().clone();
        // Reading a file blocks the thread, and a handler must not block a runtime thread.
        let (digest, bytes) = tokio::task::spawn_blocking(move || hash(&path, &stop)).await??;
        // An attempt may be repeated. If an earlier attempt has stored the digest, `store` keeps it and returns false.
        if table::store(cx.pool(), &self, digest, bytes).await? {
            cx.state::<Stored>().0.fetch_add(1, Relaxed);
        }
        Ok(())
    }
}

/// Reads a file in chunks. Returns the BLAKE3 digest of the file and its length in bytes.
fn hash(path: &Path, stop: &CancellationToken) -> Result<([u8; 32], u64), Failure> {
    if !fs::metadata(path)?.is_file() {
        return Err(Failure::terminal("is no longer a file")); // opening a pipe would wait for its writer
    }
    let (mut file, mut hasher, mut chunk) = (File::open(path)?, blake3::Hasher::new(), vec![0; 128 * 1024]);
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok((*hasher.finalize().as_bytes(), hasher.count())),
            Ok(_) if stop.is_cancelled() => return Err("stopped in the middle of the file".into()),
            Ok(read) => hasher.update(&chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
    }
}
