//! `main!` takes crate names with underscores, as in code.

queue_worker::main!(my-app);
