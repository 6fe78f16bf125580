//! Bundled binary, which can operate any store. It runs no jobs, because no job types are linked into it. `queue_worker::main!(my_app)`
//! creates a binary that runs jobs.

queue_worker::main!();
