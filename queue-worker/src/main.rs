//! The bundled binary: operates any store. It runs no jobs, because none are linked into it; `queue_worker::main!(my_app)` makes one that does.

queue_worker::main!();
