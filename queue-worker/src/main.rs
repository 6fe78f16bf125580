//! The bundled binary. It operates any store, but runs no jobs, because none are linked into it. `queue_worker::main!(my_app)` creates a
//! binary that does.

queue_worker::main!();
