//! The worker binary without a named job crate: the linker drops its job types.

queue_worker::main!();
