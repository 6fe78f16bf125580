//! A worker binary as a user would have it: the command line, with the job types of one crate linked into it.

queue_worker::main!(tests);
