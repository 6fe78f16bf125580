//! Creates clusters. `initdb` writes to a temporary folder, which is renamed on success. A killed process therefore leaves no incomplete
//! cluster under the final name.

use std::{fs, io, path::Path, process::Stdio};

use crate::{
    EmbeddedError, EmbeddedOptions,
    find::Binaries,
    folder::Folder,
    run_as::{RunAs, with_user_name},
};

const UNFINISHED: &str = "data.unfinished.";

/// Creates a cluster in the folder. The cluster trusts every user with access to its socket, which is private.
pub(crate) fn initdb(folder: &Folder, binaries: &Binaries, run_as: &RunAs, options: &EmbeddedOptions) -> Result<(), EmbeddedError> {
    remove_unfinished(folder.path());
    // The name contains the process id because the `initdb` of a killed process may still be running.
    let unfinished = folder.path().join(format!("{UNFINISHED}{}", std::process::id()));
    let mut initdb = with_user_name(run_as).command(binaries.bin.join("initdb"));
    initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions"]);
    if !options.durable {
        initdb.arg("--no-sync");
    }
    let output = initdb
        .arg("-D")
        .arg(&unfinished)
        .stderr(Stdio::piped())
        .output()
        .map_err(EmbeddedError::io("run", &binaries.bin.join("initdb")))?;
    if !output.status.success() {
        let output = crate::launch::last_lines(&String::from_utf8_lossy(&output.stderr));
        return Err(EmbeddedError::Initdb { folder: folder.path().to_owned(), output });
    }
    fs::rename(&unfinished, folder.data()).map_err(EmbeddedError::io("rename", &unfinished))?;
    if options.durable {
        fs::File::open(folder.path()).and_then(|folder| folder.sync_all()).map_err(EmbeddedError::io("sync", folder.path()))?;
    }
    Ok(())
}

/// Removes the unfinished clusters that killed processes left. If `initdb` is still running, the removal can fail, and a later start
/// removes the cluster.
fn remove_unfinished(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
            match fs::remove_dir_all(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::debug!(%error, path = %entry.path().display(), "failed to remove an unfinished cluster");
                }
                _ => {}
            }
        }
    }
}
