//! Crates are named as code names them.

queue_worker::main!(my-app);
