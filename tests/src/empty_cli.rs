//! Worker binary that names no job crate, so the linker drops the job types.

queue_worker::main!();
