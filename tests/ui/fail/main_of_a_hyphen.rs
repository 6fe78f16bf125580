//! Crate names use underscores, as in code.

queue_worker::main!(my-app);
