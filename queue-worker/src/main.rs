//! Bundled binary, which can operate any store. The binary contains no job types, so it runs no jobs. `queue_worker::main!(my_app)`
//! creates a binary that runs jobs.

queue_worker::main!();
