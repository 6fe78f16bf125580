//! Worker binary as a user would build it: the command line, linked with the job types of one crate.

queue_worker::main!(tests);
