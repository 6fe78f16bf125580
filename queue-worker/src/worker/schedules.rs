//! Declarations of the schedules in a worker's code.

use queue_core::{
    Store,
    schedule::{Declaration, Schedule},
};

use crate::error::Error;

/// Checks schedules and returns their declarations, sorted by name. The order ensures that workers which start together lock the schedules
/// in the same order. The last schedule of a name wins, so that a job type's own schedule can be replaced.
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
