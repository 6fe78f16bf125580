//! Validation and declarations of a worker's schedules.

use queue_core::{
    Store,
    schedule::{Declaration, Schedule},
};

use crate::error::Error;

/// Checks schedules and returns their declarations, sorted by name. The order prevents deadlocks between workers that start together and
/// lock the schedules. If a name occurs several times, the last schedule wins, so that a program can replace a job type's schedule.
pub(super) fn declarations(schedules: impl Iterator<Item = (String, Schedule)>, store: Store) -> Result<Vec<(String, Declaration)>, Error> {
    let mut declared: Vec<(String, Declaration)> = Vec::new();
    for (name, schedule) in schedules {
        let declaration = schedule.declaration(&name, store)?;
        declared.retain(|(known, _)| *known != name);
        declared.push((name, declaration));
    }
    declared.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(declared)
}
