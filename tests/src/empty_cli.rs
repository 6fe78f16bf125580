//! The same without a crate named: the linker leaves its job types out.

queue_worker::main!();
